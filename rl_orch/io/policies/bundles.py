"""Bundles: a policy with all it takes to act, in one sealed directory that can be carried away.

`verify` and `read` run nothing that a bundle brings along and load no torch. How one is made is in
`export/`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from rl_orch.errors import BadInput, Damaged
from rl_orch.io.files import regular, sealed
from rl_orch.io.policies import onnx_files
from rl_orch.records import EvalReport, Record
from rl_orch.spec.model import Spec
from rl_orch.spec.reader import MAX_BYTES, parse
from rl_orch.spec.upgrade import upgraded

NOUN = "bundle"
DOCUMENT = "bundle.json"
WEIGHTS = "policy.safetensors"
SPEC = "spec.yaml"
CARD = "README.md"
REPORT = "report.json"
ONNX = "policy.onnx"
INT8 = "policy.int8.onnx"
TORCHSCRIPT = "policy.ts"
PT2 = "policy.pt2"

NEEDED = (DOCUMENT, WEIGHTS, SPEC, CARD, REPORT, ONNX, TORCHSCRIPT, PT2)
OPTIONAL = (INT8,)
GRAPHS = (ONNX, INT8)
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""What writes and runs ONNX: the extra `export`."""

POLICY = "default"
MOST_BYTES = 4 << 30
"""Of all files of a bundle together, which are in memory at once."""

_BOUNDS = {DOCUMENT: regular.JSON_BYTES, REPORT: regular.JSON_BYTES, SPEC: MAX_BYTES}
"""Bytes of the documents in a bundle, which are parsed."""


class Port(Record):
    """An input or an output of a graph; `shape` is that of one row, the batch comes before it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class GraphParity(Record):
    """The nearness of a graph to the policy in torch, on so many rows.

    `largest_difference` is the greatest of |ours - torch's| over max(1, |torch's|), over actions,
    scores and what is remembered; `largest_absolute` the same without the division. Greedy choices
    that differ are `excused` where the best two scores lie closer than `gap`, and otherwise
    `differing`.
    """

    rows: int
    largest_difference: float
    largest_absolute: float
    differing: int = 0
    excused: int = 0
    tolerance: float
    gap: float

    @property
    def passed(self) -> bool:
        """Whether it is near enough, in every row."""
        return self.differing == 0 and self.largest_difference <= self.tolerance


class Quantized(Record):
    """The effect of INT8 weights on returns: on the same n episodes, acting on one row at a time,
    the mean before and after, and the interval of the mean difference."""

    file: str = INT8
    bytes_before: int
    bytes_after: int
    mean_before: float
    mean_after: float
    difference_ci95: tuple[float, float] | None = None
    n: int


class PolicyDocument(Record):
    """One policy of a bundle: its spaces, its graph's inputs and outputs, how near that comes."""

    algorithm: str
    env_id: str
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    stack_frames: int | None = None
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: tuple[str, ...] = ()
    normalizer: dict[str, Any] | None = None
    action: dict[str, Any]
    files: dict[str, str]
    parity: dict[str, GraphParity]
    int8: Quantized | None = None


class Document(Record):
    """`bundle.json`: policies by name, where they come from, and the digests of their files."""

    format_version: Literal[1] = 1
    created_at: str
    policies: dict[str, PolicyDocument]
    lineage: dict[str, Any]
    digests: dict[str, str]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose every byte was verified; `digest` is that of its manifest, and so of it all.

    `files` are the bytes that were verified: what is loaded from them cannot change meanwhile.
    """

    path: Path
    document: Document
    spec: Spec
    report: EvalReport
    digest: str
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(map(len, self.files.values()))

    @property
    def policy(self) -> PolicyDocument:
        """The one policy; single-agent bundles call it default."""
        return self.document.policies[POLICY]


def is_bundle(path: Path) -> bool:
    """Whether a directory looks like one: it has both the document and the manifest."""
    return all((path / name).is_file() for name in (DOCUMENT, sealed.MANIFEST))


def verify(path: Path, *, digest: str | None = None) -> None:
    """Raise `Damaged`, with the name at fault, unless a bundle is whole and unchanged; and has
    nothing in it that does not belong there, and is the one of that digest, if one is given."""
    read(path, digest=digest)


def read(path: Path, *, digest: str | None = None) -> Bundle:
    """The contents of a bundle, verified as by `verify`."""
    names = _names(path)
    files = sealed.read(path, names, noun=NOUN, most=MOST_BYTES)
    found = sealed.manifest_digest(path)
    if found is None:
        raise _damaged(path, f"cannot be read: {sealed.MANIFEST}")
    if digest is not None and found != digest:
        raise _damaged(path, f"is not the one that was meant: its digest is {found}, not {digest}")
    _refuse_long(path, files)
    with _reading(path, DOCUMENT):
        document = Document.model_validate_json(files[DOCUMENT])
    if POLICY not in document.policies:
        raise _damaged(path, f"has no policy {POLICY!r}: {DOCUMENT}")
    _compare_digests(path, document, files)
    for name in GRAPHS:
        if name in files:
            _refuse_external(path, name, files[name])
    spec = _spec(path, files[SPEC])
    with _reading(path, REPORT):
        report = EvalReport.model_validate(json.loads(files[REPORT])[POLICY])
    return Bundle(path, document, spec, report, found, files)


def read_spec(path: Path) -> Spec:
    """The spec of a bundle, verified; its other files are not opened."""
    _names(path)
    return _spec(path, sealed.read_one(path, SPEC, noun=NOUN, most=MAX_BYTES))


def _spec(path: Path, data: bytes) -> Spec:
    with _reading(path, SPEC):
        return Spec.model_validate(upgraded(parse(data, source=SPEC)))


def _names(path: Path) -> tuple[str, ...]:
    """The files that a bundle's manifest lists, if they are those of a bundle."""
    listed = sealed.listed(path, noun=NOUN)
    for name in sorted(listed):
        if PurePosixPath(name).name != name or "\\" in name or name in ("", ".", ".."):
            problem = f"names a file outside itself: {name!r} in {sealed.MANIFEST}"
            raise _damaged(path, problem)
    if missing := sorted(set(NEEDED) - listed):
        raise _damaged(path, f"lacks {', '.join(missing)}")
    if foreign := sorted(listed - {*NEEDED, *OPTIONAL}):
        raise _damaged(path, f"has what does not belong to it: {', '.join(foreign)}")
    return tuple(sorted(listed))


def _refuse_long(path: Path, files: Mapping[str, bytes]) -> None:
    for name, most in _BOUNDS.items():
        if len(files[name]) > most:
            size = len(files[name])
            problem = f"cannot be read: {name}: it has {size:,} bytes; at most {most:,} are read"
            raise _damaged(path, problem)


def _compare_digests(path: Path, document: Document, files: dict[str, bytes]) -> None:
    """Compare a policy's files to what the document says of them; a manifest may have been written
    anew."""
    for name, digest in document.digests.items():
        if name in files and hashlib.sha256(files[name]).hexdigest() != digest:
            raise _damaged(path, f"has another file than {DOCUMENT} tells of: {name}")
    if unsaid := sorted({*files} - {*document.digests, DOCUMENT}):
        raise _damaged(path, f"has files that {DOCUMENT} does not tell of: {', '.join(unsaid)}")


def _refuse_external(path: Path, name: str, data: bytes) -> None:
    with _reading(path, name):
        places = onnx_files.external_data(data)
    if places:
        raise _damaged(path, f"has a graph that reads data outside itself: {name}: {places[0]!r}")


@contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """A block that reads a file of a bundle, in which whatever is wrong is damage."""
    try:
        yield
    except (BadInput, ValueError, KeyError, TypeError, RecursionError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise _damaged(path, f"cannot be read: {name}: {why}") from None


def _damaged(path: Path, problem: str) -> Damaged:
    return sealed.damaged(path, problem, noun=NOUN)

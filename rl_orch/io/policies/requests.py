"""Requests about policies that are carried away, and what is refused before torch is loaded."""

import importlib.util
import os
from pathlib import Path

from rl_orch.errors import BadInput, MissingExtra
from rl_orch.io.checkpoints import external
from rl_orch.io.policies import artefacts, bundles, tabular
from rl_orch.io.policies.bundles import INT8, ONNX, ONNX_PACKAGES, PT2, TORCHSCRIPT, Bundle
from rl_orch.io.run.directory import RunDir
from rl_orch.records.tasks import ExportTask, InferTask

FILES = {"onnx": ONNX, "torchscript": TORCHSCRIPT, "pt2": PT2}
"""Format → the name that its file has in a bundle."""

BUNDLE = "bundle"
FORMATS = (*FILES, BUNDLE)
WITH_ONNX = ("onnx", BUNDLE)
TORCH = "torch"
GRAPHS = {"onnx": ONNX, "int8": INT8}
MEANS = (TORCH, *GRAPHS)


def refuse_export(task: ExportTask) -> None:
    """Raise if a policy cannot be written out as it is asked for."""
    form = task.format
    if form not in FORMATS:
        raise BadInput(f"format is {form!r}; must be one of {', '.join(FORMATS)}")
    if task.int8 and form not in WITH_ONNX:
        raise BadInput(
            f"int8 is asked for, but format is {form!r}; must be {' or '.join(WITH_ONNX)}"
        )
    if form in WITH_ONNX:
        refuse_missing()
    refuse_in_the_way(Path(task.out), form, replace=task.replace)
    refuse_unloadable(Path(task.source))


def refuse_inference(task: InferTask) -> None:
    """Raise if a policy cannot act as it is asked to."""
    if task.input is not None:
        tabular.refuse_unreadable(Path(task.input))
    if task.output is not None:
        tabular.kind_of(Path(task.output))
    source, means = Path(task.source), task.using
    if means == TORCH:
        refuse_unloadable(source)
        return
    if task.sample:
        raise BadInput(f"--using is {means!r}; graphs are greedy, only torch can sample")
    graph_of(source, means)
    refuse_missing()


def refuse_missing() -> None:
    """Raise where what writes and runs ONNX is not there; with the command that installs it."""
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"ONNX needs {' and '.join(missing)}, which this environment does not have",
            hint="Install it with `pip install 'rl-orch[export]'`.",
        )


def refuse_unloadable(path: Path) -> None:
    """Raise if there is no policy at a path that torch can be given."""
    if bundles.is_bundle(path):
        return
    if not artefacts.is_artefact(path):
        run_of(path)
    if external.is_deposit(path):
        raise BadInput(
            f"{str(path)!r} is what an external program saved; only that program can read it",
            hint="Policies that this package trained can be loaded.",
        )


def run_of(path: Path) -> RunDir:
    """The run directory that a checkpoint is in."""
    directory = RunDir(path.absolute().parent.parent)
    if not directory.is_run:
        raise BadInput(
            f"{str(path)!r} is no checkpoint of a run: {directory.spec_file} is not there",
            hint="Name a run, a checkpoint inside its run directory, or a bundle.",
        )
    return directory


def graph_of(source: Path, means: str) -> tuple[Bundle, bytes]:
    """A bundle, and that of its graphs which is asked for."""
    if means not in GRAPHS:
        raise BadInput(f"--using is {means!r}; must be one of {', '.join(MEANS)}")
    if not bundles.is_bundle(source):
        raise BadInput(
            f"--using is {means!r}, but {str(source)!r} is no bundle",
            hint="`rlctl export --format bundle` makes one; or leave --using out.",
        )
    bundle = bundles.read(source)
    data = bundle.files.get(GRAPHS[means])
    if data is None:
        raise BadInput(
            f"--using is {means!r}, but bundle {source.name} has no {GRAPHS[means]}",
            hint="`rlctl export --format bundle --int8` makes one that has.",
        )
    return bundle, data


def refuse_in_the_way(out: Path, form: str, *, replace: bool) -> None:
    """Raise if there is something where an export is to be written: what no export has written
    always, and the rest unless it is to be replaced."""
    if not os.path.lexists(out):
        return
    what = "a bundle" if form == BUNDLE else "a file"
    ours = bundles.is_bundle(out) if form == BUNDLE else out.is_file()
    if out.is_symlink() or not ours:
        raise BadInput(
            f"--out is {str(out)!r}, where there is something other than {what}",
            hint="Name another place; nothing was written.",
        )
    if not replace:
        raise BadInput(
            f"there is {what} at {str(out)!r} already",
            path=str(out),
            hint="Add --force to replace it, or name another place with --out.",
        )

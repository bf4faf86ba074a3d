"""Policies of other libraries for tests: real ones, which `benchmarks/peers/sb3_policies.py` and
`cleanrl_policies.py` have made, with the returns that those libraries report; and hostile ones.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from rl_orch.core import policy_import
from rl_orch.core.policy_import import PolicyImportRequest
from rl_orch.io.processes.task_worker import unwatched
from rl_orch.io.run.directory import RunDir
from rl_orch.records import EvalReport
from rl_orch.records.tasks import FitForeignTask
from rl_orch.rl.evaluate import evaluate
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import opened
from rl_orch.worker.tasks import fit_foreign

FOLDER = Path(__file__).parent / "data" / "foreign"
NORMALIZED = "sb3-normalized.zip"
CLOSE = 0.01
"""How far returns of continuous actions may be from those that were reported, as a share."""


def reported(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """File → what its library says of it, and the seed of the episodes."""
    found = {}
    for name in ("sb3.json", "cleanrl.json"):
        document = json.loads((folder / name).read_text())
        for each in document["policies"]:
            found[each["file"]] = each | {"seed": document["seed"]}
    return found


def taken_in(path: Path, request: PolicyImportRequest, home: Path) -> tuple[Spec, Path]:
    """A policy as an import leaves it in a home: its spec, and its checkpoint. Read by the child
    that reads for users; fitted in this process, to save the time that torch takes to load."""
    scratch = home / f"scratch-{path.name}"
    scratch.mkdir(parents=True)
    arrival = policy_import.read(path, request, scratch, unwatched)
    task = FitForeignTask(
        spec=arrival.spec,
        tensors=str(scratch / policy_import.TENSORS),
        out=str(scratch / policy_import.FITTED),
        stretched=arrival.stretched,
    )
    told = fit_foreign.adopt(task, unwatched)
    arrival = policy_import.fitted(arrival, told)
    drafted = policy_import.draft(home, arrival, "a test")
    drafted.publish()
    (run,) = drafted.runs
    (checkpoint,) = (Path(run.path) / "checkpoints").iterdir()
    return arrival.spec, checkpoint


def played(path: Path, told: Mapping[str, Any], home: Path) -> EvalReport:
    """What an imported policy does in the episodes that its library has reported on."""
    torch.set_num_threads(1)
    statistics = path.with_suffix(".npz") if path.name == NORMALIZED else None
    spec, checkpoint = taken_in(
        path, PolicyImportRequest(env=told["env"], normalizer=statistics), home
    )
    with ExitStack() as stack:
        directory = RunDir(checkpoint.parents[1])
        policy, step = stack.enter_context(opened(spec, directory, checkpoint))
        return evaluate(
            policy,
            spec,
            episodes=len(told["returns"]),
            seed=told["seed"],
            deterministic=True,
            step=step,
        )


def zipped(entries: Mapping[str, bytes], **options: Any) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def torch_file(pickled: bytes, **storages: bytes) -> bytes:
    """What torch.save would have written around a pickle."""
    entries = {f"archive/data/{key}": data for key, data in storages.items()}
    return zipped({"archive/data.pkl": pickled, "archive/byteorder": b"little"} | entries)


def saved(state: Any) -> bytes:
    """What torch.save writes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def entries(path: Path) -> dict[str, bytes]:
    """What is in a zip archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}

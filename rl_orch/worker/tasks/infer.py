"""`python -m rl_orch.worker.tasks.infer < question.json`: what a policy does with observations.

The question names a checkpoint or a bundle, and a file of observations or one by itself. Standard
output has a line of JSON whenever there is progress to tell of, and a last one with the answer.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.export.acting import GraphActing, PolicySession, SampledActing, greedy
from rl_orch.export.formats import session_run
from rl_orch.export.graph import FIRST, MASK, OBSERVATION, PolicyGraph
from rl_orch.io.policies import requests, tabular
from rl_orch.io.policies.bundles import Port
from rl_orch.rl.data.batch import rows_of
from rl_orch.worker.policies import sources
from rl_orch.worker.task import Tell, answer_one


def infer(question: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Actions for observations: in the answer, or in a file if one is named."""
    torch.set_num_threads(1)
    requests.refuse_inference(question)
    tell("loading", 0.0)
    acting, ports = _acting(question)
    if question.get("input") is None:
        columns = tabular.from_json(question["observation"])
        table = tabular.fitted(columns, ports, source="--observation", row=0)
        return {"action": _act(acting, table, ports).tolist()[0], "rows": 1}
    batches = _batches(acting, ports, Path(question["input"]), tell)
    if question.get("output") is None:
        actions = [action for batch in batches for action in batch.tolist()]
        return {"actions": actions, "rows": len(actions)}
    return _to_file(batches, Path(question["output"]))


def _to_file(batches: Iterator[NDArray[Any]], path: Path) -> dict[str, Any]:
    output, count = tabular.Output(path), 0
    try:
        for batch in batches:
            output.write(batch)
            count += len(batch)
        output.close()
    finally:
        output.discard()
    return {"path": str(path), "rows": count}


def _batches(
    acting: PolicySession, ports: Sequence[Port], path: Path, tell: Tell
) -> Iterator[NDArray[Any]]:
    for table, share in tabular.read(path, ports):
        yield _act(acting, table, ports)
        tell("acting", share)


def _act(acting: PolicySession, table: tabular.Table, ports: Sequence[Port]) -> NDArray[Any]:
    """Actions for the rows of a table: at once, or one after another where steps are remembered."""
    count = len(next(iter(table.values())))
    observed = _observations(table)
    first, masks = table.get(FIRST, np.zeros(count, np.bool_)), table.get(MASK)
    if not any(port.name.startswith("state.") for port in ports):
        return acting.act(observed, first, masks)
    steps = [
        acting.act(rows_of(observed, row), first[row], None if masks is None else masks[row])
        for row in (slice(at, at + 1) for at in range(count))
    ]
    return np.concatenate(steps)


def _observations(table: tabular.Table) -> Any:
    if OBSERVATION in table:
        return table[OBSERVATION]
    prefix = f"{OBSERVATION}."
    return {name.removeprefix(prefix): t for name, t in table.items() if name.startswith(prefix)}


def _acting(question: Mapping[str, Any]) -> tuple[PolicySession, tuple[Port, ...]]:
    """The session that acts, and the ports of its inputs."""
    source, means = Path(question["source"]), str(question.get("using") or requests.TORCH)
    if means != requests.TORCH:
        return _with_graph(source, means)
    loaded = sources.load(source, question.get("module_path", ()))
    graph = PolicyGraph(loaded.policy, loaded.spec)
    if question.get("sample"):
        seed = int(question.get("seed") or 0)
        return SampledActing(loaded.actor, loaded.spec, seed), graph.inputs
    return greedy(loaded.policy, loaded.spec), graph.inputs


def _with_graph(source: Path, means: str) -> tuple[PolicySession, tuple[Port, ...]]:
    bundle, data = requests.graph_of(source, means)
    inputs = bundle.policy.inputs
    return GraphActing(session_run(data), inputs), inputs


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(answer_one(infer))

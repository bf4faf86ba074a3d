"""`python -m rl_orch.worker.tasks.infer < question.json`: what a policy does with observations."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.export.acting import GraphActing, PolicySession, SampledActing, greedy
from rl_orch.export.formats import session_run
from rl_orch.export.graph import FIRST, MASK, OBSERVATION, PolicyGraph
from rl_orch.export.observed import ranges_of, refuse_closed
from rl_orch.io.policies import requests, tabular
from rl_orch.io.policies.bundles import Port
from rl_orch.io.policies.observed import PartRange
from rl_orch.records.tasks import InferAnswer, InferTask
from rl_orch.rl.data.batch import rows_of
from rl_orch.rl.envs import space_json
from rl_orch.rl.envs.actions import choices_of
from rl_orch.worker.policies import sources
from rl_orch.worker.task import Tell, answer_one

Ranges: TypeAlias = Mapping[str, PartRange]


def infer(task: InferTask, tell: Tell) -> InferAnswer:
    """Actions for observations: in the answer, or in a file if one is named."""
    torch.set_num_threads(1)
    requests.refuse_inference(task)
    tell("loading", 0.0)
    acting, ports, ranges, choices = _acting(task)
    if task.input is None:
        columns = tabular.from_json(task.observation, ports)
        table = tabular.fitted(columns, ports, source="--observation", row=0)
        _refuse_outside(table, ranges, single=True)
        _refuse_closed(table, choices)
        return InferAnswer(action=_act(acting, table, ports).tolist()[0], rows=1)
    read = tabular.read(Path(task.input), ports)
    tables = _inside(read, ranges, choices, Path(task.input).name)
    batches = _batches(acting, ports, tables, tell)
    if task.output is None:
        actions = tuple(action for batch in batches for action in batch.tolist())
        return InferAnswer(actions=actions, rows=len(actions))
    return _to_file(batches, Path(task.output))


def _to_file(batches: Iterator[NDArray[Any]], path: Path) -> InferAnswer:
    output, count = tabular.Output(path), 0
    try:
        for batch in batches:
            output.write(batch)
            count += len(batch)
        output.close()
    finally:
        output.discard()
    return InferAnswer(path=str(path), rows=count)


def _inside(
    tables: Iterator[tuple[tabular.Table, float]],
    ranges: Ranges,
    choices: Sequence[int],
    source: str,
) -> Iterator[tuple[tabular.Table, float]]:
    """The tables of a file, up to the first value that the policy's observations cannot have, or
    the first mask that forbids everything."""
    row = 0
    for table, share in tables:
        _refuse_outside(table, ranges, file=source, row=row)
        _refuse_closed(table, choices, row)
        row += len(next(iter(table.values())))
        yield table, share


def _refuse_outside(table: tabular.Table, ranges: Ranges, **how: Any) -> None:
    for name, part in ranges.items():
        part.refuse_outside(table[f"{OBSERVATION}.{name}" if name else OBSERVATION], **how)


def _refuse_closed(table: tabular.Table, choices: Sequence[int], row: int = 0) -> None:
    if MASK in table:
        refuse_closed(table[MASK], choices, row)


def _batches(
    acting: PolicySession,
    ports: Sequence[Port],
    tables: Iterator[tuple[tabular.Table, float]],
    tell: Tell,
) -> Iterator[NDArray[Any]]:
    for table, share in tables:
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


def _acting(task: InferTask) -> tuple[PolicySession, tuple[Port, ...], Ranges, Sequence[int]]:
    """The session that acts, the ports of its inputs, what observations may be, and the
    choices of each action."""
    source = Path(task.source)
    if task.using != requests.TORCH:
        return _with_graph(source, task.using)
    loaded = sources.load(source, task.module_path)
    graph = PolicyGraph(loaded.policy, loaded.spec)
    ranges = ranges_of(loaded.policy.observation_space, loaded.spec.obs.stack_frames)
    known = graph.inputs, ranges, choices_of(loaded.policy.action_space)
    if task.sample:
        return SampledActing(loaded.actor, loaded.spec, task.seed), *known
    return greedy(loaded.policy, loaded.spec), *known


def _with_graph(
    source: Path, means: str
) -> tuple[PolicySession, tuple[Port, ...], Ranges, Sequence[int]]:
    bundle, data = requests.graph_of(source, means)
    policy = bundle.policy
    ranges = ranges_of(space_json.from_json(policy.observation_space), policy.stack_frames)
    choices = choices_of(space_json.from_json(policy.action_space))
    return GraphActing(session_run(data), policy.inputs), policy.inputs, ranges, choices


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(answer_one(InferTask, infer))

"""Export parity on 10,000 observations, for every policy that a bar is set for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rl_orch.export.acting import GraphActor
from rl_orch.io.policies.requests import FILES
from rl_orch.rl.evaluate import evaluate
from tests.exported import VARIANTS, made

ROWS = 10_000
EPISODES = 100


@pytest.mark.parametrize("name", VARIANTS)
def test_graphs_come_within_a_hundred_thousandth_of_torch(
    name: str, record_property: Callable[[str, Any], None]
) -> None:
    torch.set_num_threads(1)
    case = made(VARIANTS[name])
    rows, writer = case.rows(ROWS), case.writer()
    figures = {}
    for form in FILES:
        written = writer.write(form)
        found = case.parity(written.run, rows)
        figures[form] = f"{found.largest_difference:.1e}, {found.differing}+{found.excused} other"
        assert found.rows == ROWS
        assert found.passed
        options: Any = {"episodes": EPISODES, "seed": 5, "deterministic": True, "step": 0}
        actor = GraphActor(written.run, case.graph.inputs, case.spec)
        ours = evaluate(actor, case.spec, **options).returns
        theirs = evaluate(case.policy, case.spec, **options).returns
        if case.graph.discrete:
            assert ours == theirs
        else:
            apart = np.abs(np.subtract(ours, theirs))
            assert np.mean(apart) <= 0.01 * abs(np.mean(theirs))
    record_property("figures", figures)

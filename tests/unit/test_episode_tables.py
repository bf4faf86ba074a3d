"""The episodes of an evaluation as files."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rl_orch.errors import Damaged
from rl_orch.io.policies.episode_records import read_records, write_records
from rl_orch.io.policies.episode_tables import write_table
from rl_orch.records import EvalReport
from rl_orch.records.tasks import Recorded
from rl_orch.stats import summarize


def a_report(*, seeds: tuple[int, ...] = (7, 8, 9)) -> EvalReport:
    returns = (1.5, -2.0, 3.25)
    return EvalReport(
        env_id="CartPole-v1",
        step=10,
        seed=1,
        deterministic=True,
        returns=returns,
        lengths=(3, 4, 5),
        summary=summarize(returns),
        seeds=seeds,
        metrics={"pushes": (0.0, 2.0, 1.0)},
    )


def test_a_table_has_a_row_for_each_episode(tmp_path: Path) -> None:
    write_table(tmp_path / "evals" / "final.parquet", a_report())
    assert pq.read_table(tmp_path / "evals" / "final.parquet").to_pydict() == {
        "episode": [0, 1, 2],
        "seed": [7, 8, 9],
        "return": [1.5, -2.0, 3.25],
        "length": [3, 4, 5],
        "pushes": [0.0, 2.0, 1.0],
    }


def test_seeds_that_nobody_knows_are_left_open(tmp_path: Path) -> None:
    write_table(tmp_path / "final.parquet", a_report(seeds=()))
    assert pq.read_table(tmp_path / "final.parquet")["seed"].to_pylist() == [None] * 3


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    best = Recorded(number=4, seed=9, ret=0.1, length=2, actions=[[0.1], [-0.30000001192092896]])
    write_records(tmp_path / "final.episodes.json", {"best": best})
    assert read_records(tmp_path / "final.episodes.json") == {"best": best}
    assert read_records(tmp_path / "none.episodes.json") == {}


@pytest.mark.parametrize("text", ["[", "[1]", '{"best": {"number": 1}}', "[" * 100_000])
def test_damaged_records_are_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "final.episodes.json"
    file.write_text(text)
    with pytest.raises(Damaged, match=r"final\.episodes\.json"):
        read_records(file)

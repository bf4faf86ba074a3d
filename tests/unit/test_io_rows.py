"""Observations out of files, and actions into them, in every kind."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from rl_orch.errors import BadInput, NotFound, RlctlError
from rl_orch.io.policies import tabular
from rl_orch.io.policies.bundles import Port
from tests.odd_files import KINDS, a_hole, in_place

PLAIN = (Port(name="observation", dtype="float32", shape=(2,)),)
PARTS = (
    Port(name="observation.side", dtype="float32", shape=(2,)),
    Port(name="observation.noise", dtype="int64", shape=()),
)
REMEMBERING = (
    *PLAIN,
    Port(name="first", dtype="bool", shape=()),
    Port(name="state.memory", dtype="float32", shape=(8,)),
)
Columns = dict[str, NDArray[Any]]
COUNT = 2 * tabular.BATCH + 5
OBSERVATIONS = np.arange(2 * COUNT, dtype=np.float32).reshape(COUNT, 2)


def written(path: Path, columns: Columns) -> Path:
    """A file of columns, in the kind that its name says."""
    if path.suffix == ".npy":
        np.save(path, columns["observation"])
    elif path.suffix == ".npz":
        np.savez(path, **columns)  # type: ignore[arg-type]
    elif path.suffix == ".parquet":
        table = {name: pyarrow.array(values.tolist()) for name, values in columns.items()}
        parquet.write_table(pyarrow.table(table), path)
    else:
        lines = zip(*(values.tolist() for values in columns.values()), strict=True)
        path.write_text(
            "\n".join(json.dumps(dict(zip(columns, line, strict=True))) for line in lines)
        )
    return path


def read(path: Path, ports: Any = PLAIN) -> dict[str, NDArray[Any]]:
    tables = [table for table, _ in tabular.read(path, ports)]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


@pytest.mark.parametrize("kind", tabular.KINDS)
def test_every_kind_of_file_gives_the_same_rows_in_batches(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"in{kind}", {"observation": OBSERVATIONS})
    shares = [(len(table["observation"]), share) for table, share in tabular.read(path, PLAIN)]
    assert [size for size, _ in shares] == [tabular.BATCH, tabular.BATCH, 5]
    assert shares[-1][1] == 1.0
    np.testing.assert_array_equal(read(path)["observation"], OBSERVATIONS)


@pytest.mark.parametrize("kind", tabular.KINDS[1:])
def test_parts_are_columns_by_their_names_alone_or_in_full(kind: str, tmp_path: Path) -> None:
    side, noise = OBSERVATIONS[:7], np.arange(7)
    for prefix in ("", "observation."):
        columns: Columns = {f"{prefix}side": side, f"{prefix}noise": noise}
        found = read(written(tmp_path / f"in{kind}", columns), PARTS)
        np.testing.assert_array_equal(found["observation.side"], side)
        np.testing.assert_array_equal(found["observation.noise"], noise)


@pytest.mark.parametrize("kind", tabular.KINDS)
def test_without_a_column_that_says_so_all_rows_are_one_episode(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"in{kind}", {"observation": OBSERVATIONS})
    first = read(path, REMEMBERING)["first"]
    assert first[0]
    assert not first[1:].any()


@pytest.mark.parametrize("kind", tabular.KINDS[1:])
def test_a_column_says_where_episodes_begin(kind: str, tmp_path: Path) -> None:
    begins = np.arange(6) % 3 == 0
    columns = {"observation": OBSERVATIONS[:6], "first": begins}
    found = read(written(tmp_path / f"in{kind}", columns), REMEMBERING)
    np.testing.assert_array_equal(found["first"], begins)


def test_a_line_may_be_an_observation_by_itself_or_nested(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("[1, 2]\n\n[3, 4]\n")
    assert read(path)["observation"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    path.write_text('{"observation": {"side": [1, 2], "noise": 0}}\n')
    assert read(path, PARTS)["observation.noise"].tolist() == [0]


MISTAKES = {
    "[1, 2]\n[1, 2, 3]\n": r"row 2 of in\.jsonl has shape \[3\] .* must be numbers of shape \[2\]",
    '[1, 2]\n[1, "a"]\n': r"row 2 of in\.jsonl has \[1, 'a'\]",
    "[1, 2]\n[1, NaN]\n": r"row 2 of in\.jsonl has nan",
    "[1, Infinity]\n": r"row 1 of in\.jsonl has inf in 'observation'; must be a finite number",
    "[1, 1e39]\n": r"row 1 of in\.jsonl has 1e\+39",
    "[1, 2]\n{\n": r"line 2 of in\.jsonl is not JSON",
    '{"observations": [1, 2]}\n': r"lacks the column 'observation'; it has: observations",
    '[1, 2]\n{"observation": [1, 2], "first": true}\n': "do not all have the same names",
    "\n": "has no rows",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_does_not_fit_is_refused_with_its_row(text: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=MISTAKES[text]):
        read(path)


def test_whole_numbers_must_be_whole(tmp_path: Path) -> None:
    columns = {"side": OBSERVATIONS[:3], "noise": np.array([0.0, 1.0, 1.5])}
    with pytest.raises(BadInput, match=r"row 3 of in\.npz has 1\.5 .* whole numbers"):
        read(written(tmp_path / "in.npz", columns), PARTS)


def test_columns_must_be_equally_long(tmp_path: Path) -> None:
    columns = {"observation": OBSERVATIONS[:3], "first": np.ones((3, 1), np.bool_)}
    with pytest.raises(BadInput, match="'first'"):
        read(written(tmp_path / "in.npz", columns), REMEMBERING)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadInput, match=r"in\.npy cannot be read"):
        read(tmp_path / "in.npy")


@pytest.mark.parametrize("kind", [".npy", ".npz", ".parquet"])
def test_a_file_that_is_none_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"in{kind}").write_bytes(b"nothing of the kind")
    with pytest.raises(BadInput, match="cannot be read"):
        read(tmp_path / f"in{kind}")
    with pytest.raises(NotFound):
        read(tmp_path / f"nowhere{kind}")


@pytest.mark.parametrize("odd", KINDS)
@pytest.mark.parametrize("kind", tabular.KINDS)
def test_what_is_no_file_is_refused_and_not_waited_for(kind: str, odd: str, tmp_path: Path) -> None:
    in_place(tmp_path / f"in{kind}", odd)
    with pytest.raises(BadInput, match=f"in{kind}' cannot be read: it is {odd}, not a file"):
        read(tmp_path / f"in{kind}")


@pytest.mark.parametrize("kind", tabular.KINDS)
def test_a_hole_of_500_gb_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    a_hole(tmp_path / f"in{kind}")
    with pytest.raises(BadInput, match=rf"in{kind} (cannot be read|has (500,|more than))"):
        read(tmp_path / f"in{kind}")


def test_what_is_in_memory_at_once_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"observation": OBSERVATIONS}
    for kind, problem in ((".npz", "of .npz at most 100 are read"), (".parquet", "row group 1 of")):
        path = written(tmp_path / f"in{kind}", columns)
        read(path)
        with monkeypatch.context() as patch:
            patch.setattr(tabular, "MOST_UNPACKED", 100)
            with pytest.raises(BadInput, match=problem):
                read(path)
    path = written(tmp_path / "in.jsonl", columns)
    monkeypatch.setattr(tabular, "LONGEST_LINE", 20)
    with pytest.raises(BadInput, match=r"line 1 of in\.jsonl has more than 20 bytes"):
        read(path)


def test_an_array_that_claims_more_than_there_is_memory_is_refused(tmp_path: Path) -> None:
    name = tmp_path / "in.npz"
    np.savez(name, observation=np.zeros((3, 2), np.float32))
    with zipfile.ZipFile(name) as archive:
        header = archive.read("observation.npy")
    claimed = header.replace(b"(3, 2), }             ", b"(999999999999, 2), }  ")
    assert claimed != header
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr("observation.npy", claimed)
    problem = r"in\.npz cannot be read: its shape is \[999999999999, 2\], .* bytes; there are 24"
    with pytest.raises(BadInput, match=problem):
        read(name)


def test_an_unknown_kind_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\.csv.*\.npy, \.npz, \.parquet, \.jsonl"):
        read(tmp_path / "in.csv")


ACTIONS: Columns = {
    "choices": np.arange(5),
    "moves": np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2),
    "tables": np.arange(20).reshape(5, 2, 2),
}


@pytest.mark.parametrize("kind", tabular.KINDS)
@pytest.mark.parametrize("name", ACTIONS)
def test_actions_come_back_from_every_kind_of_file(kind: str, name: str, tmp_path: Path) -> None:
    path, actions = tmp_path / f"out{kind}", ACTIONS[name]
    output = tabular.Output(path)
    output.write(actions[:2])
    output.write(actions[2:])
    assert not path.exists()
    output.close()
    np.testing.assert_allclose(_actions(path), actions)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def _actions(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        return np.load(path)["action"]
    if path.suffix == ".parquet":
        return parquet.read_table(path)["action"].to_pylist()
    return [json.loads(line)["action"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", tabular.KINDS)
def test_nothing_is_left_of_a_file_that_was_given_up(kind: str, tmp_path: Path) -> None:
    output = tabular.Output(tmp_path / f"out{kind}")
    output.write(np.arange(3))
    output.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(RlctlError, match=r"cannot write .*nowhere"):
        tabular.Output(tmp_path / "nowhere" / "out.jsonl")


def test_arrays_that_would_fill_the_memory_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "it.npz", observation=np.zeros((10_000, 2), np.float32))
    monkeypatch.setattr(tabular, "MOST_UNPACKED", 80_000)
    with pytest.raises(BadInput, match=r"bytes unpacked; at most 80,000 are allowed"):
        list(tabular.read(tmp_path / "it.npz", PLAIN))


def test_a_small_file_that_unpacks_to_very_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabular, "SMALL", 80_000)
    zeros = np.zeros((100_000, 2), np.float32)
    np.savez_compressed(tmp_path / "zeros.npz", observation=zeros)
    most = f"{100 * (tmp_path / 'zeros.npz').stat().st_size:,}"
    problem = f"zeros.npz has 800,128 bytes unpacked; at most {most} are allowed"
    with pytest.raises(BadInput, match=problem) as refused:
        read(tmp_path / "zeros.npz")
    assert refused.value.hint == "Save it as .npy, which may be of any size."
    np.savez_compressed(tmp_path / "few.npz", observation=zeros[:9000])
    assert len(read(tmp_path / "few.npz")["observation"]) == 9000
    table = pyarrow.table({"observation": pyarrow.array([[0.0, 0.0]] * 100_000)})
    parquet.write_table(table, tmp_path / "it.parquet", use_dictionary=False, compression="zstd")
    with pytest.raises(BadInput, match=r"row group 1 of it\.parquet"):
        read(tmp_path / "it.parquet")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_in_either_order_of_memory_are_read(save: Any, order: Any, tmp_path: Path) -> None:
    save(tmp_path / "in.npz", observation=np.asarray(OBSERVATIONS, order=order))
    table = read(tmp_path / "in.npz")
    np.testing.assert_array_equal(table["observation"], OBSERVATIONS)


def test_who_leaves_the_mask_out_is_told_the_form_of_a_row(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("[1, 2]\n")
    ports = (*PLAIN, Port(name="mask", dtype="bool", shape=(3,)))
    with pytest.raises(BadInput, match="lacks the column 'mask'") as refused:
        read(tmp_path / "in.jsonl", ports)
    assert '{"observation": …, "mask": …}' in str(refused.value.hint)

"""Pages of runs are the same in SQLite and in PostgreSQL: orders, filters, cursors, and fast."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import ACTIVE, RUNS
from rl_orch.errors import BadInput
from rl_orch.records import Run, State, queries
from rl_orch.records.queries import SORTS, ModelQuery, Query
from tests.counting import calls
from tests.postgres import Postgres
from tests.stores import KINDS, a_run

ORDERS = [*SORTS, *(f"-{column}" for column in SORTS)]
MANY = 10_000
MOST_CALLS = 20_000
"""Of functions, for a page of fifty runs; `make soak` takes the time."""


@pytest.fixture(scope="module", params=KINDS)
def full(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A store with many runs, most of which have ended."""
    location: Path | str = tmp_path_factory.mktemp("full") / "rlctl.db"
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        location = postgres.database()
    store = Store(location)
    store.submit([_one_of_many(number) for number in range(MANY)], key=None, digest="")
    with store.writing() as connection:
        connection.execute(sa.text("ANALYZE"))
    yield store
    store.close()


def _one_of_many(number: int) -> Run:
    return a_run(
        f"r-{number:05}",
        created_at=float(number),
        updated_at=float(-number),
        env_steps=number * 7919 % 1000,
        name=f"name {number % 100:02}/✓",
        state=State.QUEUED if number % 100 == 0 else State.SUCCEEDED,
    )


def walk(store: Store, query: Query) -> list[Run]:
    """Every run of a query, page after page."""
    seen: list[Run] = []
    while True:
        page = store.page(query)
        seen += page.runs
        if page.next is None:
            return seen
        query = replace(query, after=page.next)


@pytest.mark.parametrize("sort", ORDERS)
def test_pages_go_through_all_runs_in_order_without_a_gap(full: Store, sort: str) -> None:
    seen = walk(full, Query(limit=777, sort=sort))
    column = sort.removeprefix("-")
    keys = [(getattr(run, column), run.id) for run in seen]
    assert keys == sorted(keys, reverse=sort.startswith("-"))
    assert len(set(keys)) == MANY


def test_the_newest_run_comes_first_unless_asked_otherwise(store: Store) -> None:
    for number, name in enumerate("cab"):
        store.add(a_run(name, created_at=float(number)))
    assert [run.id for run in store.page().runs] == ["b", "a", "c"]
    assert [run.id for run in store.page(Query(sort="created_at")).runs] == ["c", "a", "b"]


def test_a_run_that_arrives_between_two_pages_shifts_nothing(store: Store) -> None:
    for number in range(4):
        store.add(a_run(f"r-{number}", created_at=float(number)))
    first = store.page(Query(limit=2))
    store.add(a_run("new", created_at=9.0))
    rest = store.page(Query(limit=2, after=first.next))
    assert [run.id for run in (*first.runs, *rest.runs)] == ["r-3", "r-2", "r-1", "r-0"]


def test_a_page_has_the_runs_that_match_everything_asked_for(store: Store) -> None:
    store.add(a_run("other"))
    failed = a_run("failed", state=State.FAILED)
    wanted = {"group": "g", "queue": "q", "env": "e", "algo": "a", "name": "n"}
    for name in wanted:
        changes = {key: value for key, value in wanted.items() if key != name}
        store.add(failed.model_copy(update=changes | {"id": f"not-{name}"}))
    store.add(failed.model_copy(update=wanted | {"id": "match"}))
    query = Query(
        states=(State.FAILED, State.LOST), group="g", queue="q", env="e", algo="a", name="n"
    )
    assert [run.id for run in store.page(query).runs] == ["match"]
    assert store.page(replace(query, states=(State.LOST,))).runs == ()
    assert len(store.page(Query(queue="q")).runs) == 5


def test_an_unknown_order_is_refused_with_the_known_ones(store: Store) -> None:
    for sort in ("seed", "", "-", "--name", "lease", "name; DROP TABLE runs"):
        with pytest.raises(BadInput, match="created_at, updated_at, name, env_steps, state"):
            store.page(Query(sort=sort))


def test_a_cursor_or_a_size_that_cannot_be_is_refused(store: Store) -> None:
    for after in ("nonsense", queries.cursor("name", "walker", "r-1")):
        with pytest.raises(BadInput, match="not one of ours"):
            store.page(Query(after=after))
        with pytest.raises(BadInput, match="not one of ours"):
            store.rows(after=after)
    for limit in (0, -1, queries.LARGEST_PAGE + 1, 2**63):
        with pytest.raises(BadInput, match=f"limit is {limit}"):
            store.page(Query(limit=limit))
        with pytest.raises(BadInput, match=f"limit is {limit}"):
            store.rows(limit=limit)


@pytest.mark.parametrize("sort", ORDERS)
def test_a_first_page_of_many_runs_comes_from_an_index(full: Store, sort: str) -> None:
    column = RUNS.c[sort.removeprefix("-")]
    order = (column.desc(), RUNS.c.id.desc()) if sort.startswith("-") else (column, RUNS.c.id)
    query = sa.select(RUNS).order_by(*order).limit(51)
    plan = _plan(full, query)
    assert f"idx_runs_{column.name.removesuffix('_at')}" in plan
    assert "sort" not in plan.lower()
    assert "temp b-tree" not in plan.lower()


def test_the_active_runs_come_from_an_index(full: Store) -> None:
    query = sa.select(RUNS).where(ACTIVE)
    assert "idx_runs_active" in _plan(full, query)
    assert len(full.active()) == MANY / 100


def test_a_page_of_many_runs_is_as_little_work_wherever_it_is(full: Store) -> None:
    for sort in ORDERS:
        first, middle = Query(sort=sort), full.page(Query(limit=5000, sort=sort)).next
        for query in (first, replace(first, after=middle)):
            assert len(full.page(query).runs) == 50
            assert calls(partial(full.page, query)) < MOST_CALLS


def _plan(store: Store, query: sa.Select[tuple[object, ...]]) -> str:
    with store.reading() as connection:
        dialect = connection.dialect
        text = str(query.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
        word = "EXPLAIN" if dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
        rows = connection.execute(sa.text(f"{word} {text}")).all()
    return "\n".join(str(row[-1]) for row in rows)


@pytest.mark.parametrize(
    ("written", "algo"),
    [("MaskablePPO", "ppo"), ("RecurrentPPO", "ppo"), ("QR-DQN", "qrdqn"), ("m:Evo", "m:Evo")],
)
def test_a_filter_takes_an_algorithm_by_any_of_its_names(written: str, algo: str) -> None:
    assert Query(algo=written).algo == ModelQuery(algo=written).algo == algo

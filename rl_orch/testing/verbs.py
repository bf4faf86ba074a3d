"""A contract suite of the verbs: the same here, in the orchestrator itself, and over HTTP."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.errors import (
    Ambiguous,
    BadInput,
    Conflict,
    MissingExtra,
    NotFound,
    Problem,
    RlctlError,
    RunLocked,
    SpecInvalid,
    Warn,
    unheard,
)
from rl_orch.io.files import sealed
from rl_orch.io.policies import bundles
from rl_orch.io.processes import pids
from rl_orch.io.run.command_socket import Request, serve
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from rl_orch.records.queries import Query
from rl_orch.spec.model import Spec
from rl_orch.spec.runner_traits import BUILT_IN
from rl_orch.testing.fakes import FakeRunner, a_spec, trains_to

if TYPE_CHECKING:
    from rl_orch.client import Client

VerbsUnderTest: TypeAlias = "Orchestrator | Client"

WRONG = "CartPole-v999"
"""An environment that the runner of these tests refuses."""

BARE = "Bare-v0"
"""An environment for which something is not installed."""


class OrchestratorContract(ABC):
    """The contract of everybody who has the verbs.

    Runs are carried out by an orchestrator in this process, whose run processes are functions; the
    verbs under test look at the same home.
    """

    @abstractmethod
    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        """The verbs under test, at the home of an orchestrator in this process."""

    def make_local(self, folder: Path) -> Orchestrator:
        """An orchestrator whose runs end well at once, and that refuses one environment."""
        return Orchestrator(folder / "home", _Refusing(_logs(trains_to([4.0, 5.0] * 6))))

    def test_what_is_submitted_is_queued_and_can_be_found(self, tmp_path: Path) -> None:
        """By its id, a beginning of it, its name and `last`."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            submission = verbs.submit(a_spec("name=found"))
            (run,) = submission.runs
            assert (run.state, submission.group, submission.repeated) == (
                State.QUEUED, None, False
            )  # fmt: skip
            for reference in (run.id, run.id[:-1], "found", "last"):
                assert verbs.get(reference) == run
            assert verbs.ls().runs == (run,)
            assert verbs.rows().rows == ((run,),)
            assert verbs.group(run.id) is None

    def test_seeds_make_a_group(self, tmp_path: Path) -> None:
        """It is one row, and its runs are in the order of their seeds."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            submission = verbs.submit(a_spec("name=many", "seeds=[3,1,2]"))
            group = submission.group
            assert group is not None
            assert [run.seed for run in submission.runs] == [3, 1, 2]
            for reference in (group.id, group.id[:-1], "many"):
                found = verbs.group(reference)
                assert found is not None
                assert (found.id, found.seeds) == (group.id, (1, 2, 3))
            runs = verbs.group_runs(group.id)
            assert [run.seed for run in runs] == [1, 2, 3]
            assert verbs.rows().rows == (runs,)
            verbs.tag(runs[0].id, {"kept": "yes"})
            some = verbs.rows(where=Query(tags=("kept=yes",)))
            assert [run.id for (run,) in some.rows] == [*some.single] == [runs[0].id]
            assert verbs.rows(where=Query(name=runs[0].name)).single == frozenset()
            assert verbs.group_runs("nobody") == ()

    def test_a_key_makes_one_experiment_however_often_it_is_used(self, tmp_path: Path) -> None:
        """For another spec it is refused."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            first = verbs.submit(a_spec("seeds=2"), key="mine")
            again = verbs.submit(a_spec("seeds=2"), key="mine")
            assert again.runs == first.runs
            assert (first.repeated, again.repeated) == (False, True)
            assert len(verbs.ls().runs) == 2
            assert isinstance(_error(lambda: verbs.submit(a_spec(), key="mine")), Conflict)
            assert len(verbs.ls().runs) == 2

    def test_what_cannot_be_carried_out_is_refused_and_leaves_nothing(self, tmp_path: Path) -> None:
        """All problems are told."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            verbs.check(a_spec())
            for ask in (verbs.check, verbs.submit):
                refusal = _error(partial(ask, a_spec(env_id=WRONG)))
                assert isinstance(refusal, SpecInvalid)
                assert refusal.problems == PROBLEMS
            assert verbs.ls().runs == ()
            refusal = alike(local, verbs, lambda known: known.check(a_spec(env_id=BARE)))
            assert isinstance(refusal, MissingExtra)
            alike(local, verbs, lambda known: known.submit(a_spec("schedule.after=[nobody]")))

    def test_what_is_worth_a_warning_is_told_and_stops_nothing(self, tmp_path: Path) -> None:
        """By a check to whoever listens, by a submission in its answer."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            heard: list[Problem] = []
            verbs.check(a_spec(env_id=ENDLESS), warn=heard.append)
            assert heard == [WARNING]
            assert verbs.submit(a_spec(env_id=ENDLESS)).warnings == (str(WARNING),)

    def test_runs_are_found_by_their_relations(self, tmp_path: Path) -> None:
        """By tag, as it is set and removed later too, by parent and by role."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            whole = verbs.submit(a_spec("name=whole", "seeds=2", "tags={team: a}"))
            assert whole.group is not None
            (one,) = verbs.submit(a_spec("name=one", f"parent={whole.group.id}", "role=trial")).runs
            assert (one.parent, one.role, one.tags) == (whole.group.id, "trial", {})
            tagged = verbs.tag("one", {"team": "B", "note": 'a="x"'}, remove=["gone"])
            assert tagged == verbs.get("one")
            assert RunDir.of(tagged).tags() == tagged.tags == {"team": "B", "note": 'a="x"'}
            for query, found in (
                (Query(tags=("team=a",)), ["whole", "whole"]),
                (Query(tags=("team=B", 'note=a="x"')), ["one"]),
                (Query(tags=("team=b",)), []),
                (Query(role="seed"), ["whole", "whole"]),
                (Query(parent=whole.group.id, role="trial"), ["one"]),
                (Query(parent="whole", role="trial"), ["one"]),
                (Query(parent="one"), []),
                (Query(parent="nobody"), []),
            ):
                assert _names(verbs, query) == found, query
            assert verbs.tag("one", {}, remove=["team"]).tags == {"note": 'a="x"'}
            alike(local, verbs, lambda known: known.tag("one", {"": "x"}))
            noted = verbs.note("one", "  stacked\nframes ")
            assert noted == verbs.get("one")
            assert RunDir.of(noted).note() == noted.note == "stacked\nframes"
            assert verbs.note("one", "").note == ""
            alike(local, verbs, lambda known: known.note("one", "\x1b[2J"))
            assert _names(verbs, Query(since=one.created_at)) == ["one"]
            assert _names(verbs, Query(until=one.created_at, env="CartPole-v1")) == ["whole"] * 2
            alike(local, verbs, lambda known: known.ls(Query(tags=("team",))))
            alike(local, verbs, lambda known: known.submit(a_spec("parent=nobody")))

    def test_the_runners_are_told_with_what_they_can_do(self, tmp_path: Path) -> None:
        """Ours at least."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            told = {runner.name: runner.traits for runner in verbs.runners()}
            assert {name: told[name] for name in BUILT_IN} == BUILT_IN

    def test_pages_follow_each_other_and_miss_nothing(self, tmp_path: Path) -> None:
        """In any order, with any filter."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            for name in "cabed":
                verbs.submit(a_spec(f"name={name}", "schedule.queue=q"))
            verbs.submit(a_spec("name=other"))
            assert _names(verbs, Query(limit=2, queue="q")) == ["d", "e", "b", "a", "c"]
            assert _names(verbs, Query(limit=2, queue="q", sort="name")) == list("abcde")
            assert _names(verbs, Query(limit=1, queue="q", sort="-name")) == list("edcba")
            assert _names(verbs, Query(states=(State.RUNNING, State.LOST))) == []
            assert _names(verbs, Query(name="other", env="CartPole-v1", algo="ppo")) == ["other"]
            first = verbs.rows(limit=4)
            rest = verbs.rows(limit=4, after=first.next)
            names = [runs[0].name for runs in (*first.rows, *rest.rows)]
            assert (names, rest.next) == (["other", *"debac"], None)

    def test_a_page_that_there_is_not_is_refused_alike(self, tmp_path: Path) -> None:
        """Wrong orders, wrong cursors."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            verbs.submit(a_spec())
            alike(local, verbs, lambda known: known.ls(Query(sort="luck")))
            alike(local, verbs, lambda known: known.ls(Query(after="nowhere")))
            alike(local, verbs, lambda known: known.rows(after="nowhere"))

    def test_a_run_is_shown_with_all_that_belongs_to_it(self, tmp_path: Path) -> None:
        """View, history, events and log are what the files say."""
        local = self.make_local(tmp_path)
        run = local.launch(a_spec("gates.min_return=1", "eval.final_episodes=10")).run
        with self.reach(local) as verbs:
            assert verbs.get(run.id).state is State.SUCCEEDED
            assert verbs.show(run.id) == local.show(run.id)
            assert verbs.show(run.id).verdict is not None
            assert verbs.history(run.id) == local.history(run.id)
            assert verbs.history(run.id).evaluations != ()
            assert verbs.log(run.id) == local.log(run.id)
            assert "begun" in verbs.log(run.id).text

    def test_events_and_logs_are_read_on_from_where_one_was(self, tmp_path: Path) -> None:
        """An offset is the one that the part before ended with."""
        local = self.make_local(tmp_path)
        run = local.launch(a_spec()).run
        with self.reach(local) as verbs:
            whole = verbs.events(run.id)
            assert whole.events == local.events(run.id).events
            first = verbs.events(run.id, count=1)
            rest = verbs.events(run.id, first.offset)
            assert (*first.events, *rest.events) == whole.events
            assert verbs.events(run.id, rest.offset).events == ()
            log = verbs.log(run.id)
            assert verbs.log(run.id, log.offset).text == ""

    def test_a_queued_run_is_stopped_and_queued_again(self, tmp_path: Path) -> None:
        """Under options that may change."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            (run,) = verbs.submit(a_spec()).runs
            stopped = verbs.stop(run.id)
            assert stopped.state is State.STOPPED
            alike(local, verbs, lambda known: known.stop(run.id))
            alike(local, verbs, lambda known: known.ask_to_stop(run.id))
            alike(local, verbs, lambda known: known.requeue(run.id, overrides=["env.seed=7"]))
            longer = verbs.requeue(run.id, overrides=["train.total_timesteps=200000"])
            assert [each.state for each in longer.runs] == [State.QUEUED]
            assert longer.runs[0].total_timesteps == 200_000
            assert longer.runs[0].arrival > run.arrival
            assert verbs.get(run.id) == longer.runs[0]

    def test_a_group_is_queued_again_whole(self, tmp_path: Path) -> None:
        """Those of its runs that have stopped."""
        with self.reach(self.make_local(tmp_path)) as verbs:
            group = verbs.submit(a_spec("seeds=2")).group
            assert group is not None
            for run in verbs.group_runs(group.id):
                verbs.ask_to_stop(run.id, force=True)
            found = verbs.group(group.id)
            assert found is not None
            assert found.state is State.STOPPED
            again = verbs.requeue(group.id)
            assert again.group is not None
            assert (again.group.id, again.group.active) == (group.id, True)

    def test_of_a_group_those_are_queued_again_that_can_be(self, tmp_path: Path) -> None:
        """What refuses is told of, wherever it stands among them; where all do, that is raised."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            runs = verbs.submit(a_spec("seeds=3")).runs
            for run in runs:
                verbs.ask_to_stop(run.id, force=True)
            held, *others = runs
            lease = pids.lease()
            assert local.store.take_lease(held.id, held_by=None, lease=lease)
            again = verbs.requeue(str(held.group))
            states = {run.id: run.state for run in again.runs}
            assert {states[run.id] for run in others} == {State.QUEUED}
            assert states[held.id] is State.STOPPED
            (warning,) = again.warnings
            assert held.id in warning
            for run in others:
                verbs.ask_to_stop(run.id, force=True)
                assert local.store.take_lease(run.id, held_by=None, lease=lease)
            refusal = alike(local, verbs, lambda known: known.requeue(str(held.group)))
            assert isinstance(refusal, RunLocked)
            pids.let_go(lease)

    def test_what_is_final_is_not_queued_again(self, tmp_path: Path) -> None:
        """A run that has succeeded stays as it is."""
        local = self.make_local(tmp_path)
        run = local.launch(a_spec()).run
        with self.reach(local) as verbs:
            refusal = alike(local, verbs, lambda known: known.requeue(run.id))
            assert isinstance(refusal, Conflict)

    def test_only_what_has_ended_is_removed(self, tmp_path: Path) -> None:
        """With its directory."""
        local = self.make_local(tmp_path)
        run = local.launch(a_spec()).run
        with self.reach(local) as verbs:
            (waiting,) = verbs.submit(a_spec()).runs
            refusal = alike(local, verbs, lambda known: known.remove(waiting.id))
            assert isinstance(refusal, Conflict)
            assert verbs.remove(run.id).id == run.id
            assert verbs.ls().runs == (waiting,)
            assert not Path(run.path).exists()
            assert isinstance(alike(local, verbs, lambda known: known.get(run.id)), NotFound)

    def test_nothing_is_changed_by_a_name_that_several_have(self, tmp_path: Path) -> None:
        """All of them are named; of those to stop, a run that has ended is none."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            runs = [verbs.submit(a_spec("name='a/twin'")).runs[0] for _ in range(2)]
            asked: list[Callable[[VerbsUnderTest], object]] = [
                lambda known: known.stop("a/twin"),
                lambda known: known.ask_to_stop("a/twin", force=True),
                lambda known: known.tag("a/twin", {"a": "b"}),
                lambda known: known.remove("a/twin"),
                lambda known: known.command("a/twin", "pause", {}),
                lambda known: known.models.promote("a/twin", "production"),
            ]
            for ask in asked:
                refusal = alike(local, verbs, ask)
                assert isinstance(refusal, Ambiguous)
                assert all(run.id in refusal.message for run in runs)
            assert [verbs.get(run.id) for run in runs] == runs
            assert verbs.get("a/twin") == runs[1]
            verbs.stop(runs[1].id)
            assert verbs.stop("a/twin").id == runs[0].id
            assert isinstance(alike(local, verbs, lambda known: known.stop("a/twin")), Conflict)
            assert isinstance(alike(local, verbs, lambda known: known.remove("a/twin")), Ambiguous)
            verbs.remove(runs[0].id)
            assert verbs.remove("a/twin").id == runs[1].id

    def test_of_several_of_a_name_the_one_that_can_go_on_is_resumed(self, tmp_path: Path) -> None:
        """Where more than one can, all of those are named, and none is resumed."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            for name in ("twin", "a/twin"):
                runs = [verbs.submit(a_spec(f"name={name!r}")).runs[0] for _ in range(3)]
                for run in runs[:2]:
                    verbs.stop(run.id)
                before = [verbs.get(run.id) for run in runs]
                refusal = alike(local, verbs, methodcaller("requeue", name))
                assert isinstance(refusal, Ambiguous)
                assert [run.id in refusal.message for run in runs] == [True, True, False]
                assert [verbs.get(run.id) for run in runs] == before
                verbs.requeue(runs[0].id)
                assert [run.id for run in verbs.requeue(name).runs] == [runs[1].id]

    def test_no_run_of_a_group_is_taken_for_the_group(self, tmp_path: Path) -> None:
        """Its name names all of its runs."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            verbs.submit(a_spec("name=many", "seeds=2"))
            for ask in (lambda known: known.stop("many"), lambda known: known.remove("many")):
                assert isinstance(alike(local, verbs, ask), Ambiguous)

    def test_what_is_not_there_is_told_in_the_same_words(self, tmp_path: Path) -> None:
        """Whatever is asked of it."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            alike(local, verbs, lambda known: known.get("last"))
            runs = [verbs.submit(a_spec("name=twin")).runs[0] for _ in range(2)]
            asked: list[Callable[[VerbsUnderTest], object]] = [
                lambda known: known.get("nobody"),
                lambda known: known.show("nobody"),
                lambda known: known.history("nobody"),
                lambda known: known.events("nobody"),
                lambda known: known.log("nobody"),
                lambda known: known.stop("nobody"),
                lambda known: known.requeue("nobody"),
                lambda known: known.remove("nobody"),
                lambda known: known.command("nobody", "pause", {}),
                lambda known: known.get("twin-"),
            ]
            for ask in asked:
                assert isinstance(alike(local, verbs, ask), BadInput)
            shutil.rmtree(runs[0].path)
            for ask in (lambda known: known.show(runs[0].id), lambda known: known.log(runs[0].id)):
                assert isinstance(alike(local, verbs, ask), NotFound)

    def test_commands_are_refused_alike_where_nobody_hears_them(self, tmp_path: Path) -> None:
        """Unknown ones, and those to a run that has ended."""
        local = self.make_local(tmp_path)
        run = local.launch(a_spec()).run
        with self.reach(local) as verbs:
            alike(local, verbs, lambda known: known.command(run.id, "dance", {}))
            alike(local, verbs, lambda known: known.command(run.id, "pause", {}))
            changed = {"overrides": ["train.lr=1"]}
            alike(local, verbs, lambda known: known.command(run.id, "set", changed))
            alike(local, verbs, lambda known: known.submit(a_spec("start.from=nobody")))

    def test_bundles_of_this_machine_are_begun_with_and_loaded(self, tmp_path: Path) -> None:
        """Wherever the runs are: they are sent along."""
        local, bundle = self.make_local(tmp_path), tmp_path / "it.bundle"
        sealed.write(bundle, {bundles.DOCUMENT: b"{}"}, noun=bundles.NOUN)
        digest, spec = sealed.manifest_digest(bundle), a_spec(f"start.from={bundle}")
        heard: list[str] = []

        def hear(request: Request) -> dict[str, Any]:
            heard.append(request.arguments["source"])
            return {}

        with self.reach(local) as verbs:
            verbs.check(spec)
            first, again = (verbs.submit(spec, key="mine") for _ in range(2))
            assert (again.repeated, again.runs) == (True, first.runs)
            (run,) = first.runs
            start = verbs.show(run.id).start
            assert start is not None
            assert (start["kind"], start["digest"]) == ("bundle", digest)
            with closing(serve(Path(run.path), hear)):
                assert verbs.command(run.id, "load", {"source": str(bundle)})["ok"]
            assert [sealed.manifest_digest(Path(path)) for path in heard] == [digest]

    def test_a_name_may_hold_what_an_address_may_not(self, tmp_path: Path) -> None:
        """Environments have names with slashes in them, and so have their runs."""
        local = self.make_local(tmp_path)
        with self.reach(local) as verbs:
            (run,) = verbs.submit(a_spec("name='ppo-ALE/Pong-v5?#%'")).runs
            assert verbs.get("ppo-ALE/Pong-v5?#%") == run
            assert verbs.group("ppo-ALE/Pong-v5?#%") is None
            group = verbs.submit(a_spec("name='a/b'", "seeds=2")).group
            assert group is not None
            found = verbs.group("a/b")
            assert found is not None
            assert found.id == group.id
            for member in group.runs:
                verbs.stop(member)
            assert len(verbs.requeue("a/b").runs) == 2
            alike(local, verbs, lambda known: known.get("no/body"))
            single = verbs.submit(a_spec("name='a/b'")).runs[0]
            assert (verbs.group("a/b"), verbs.get("a/b")) == (None, single)


PROBLEMS = (
    Problem("env.id", WRONG, f"env.id is {WRONG!r}; there is none", "Try CartPole-v1."),
    Problem("env.num_envs", 8, "env.num_envs is 8; too many of none"),
)
ENDLESS = "Endless-v0"
WARNING = Problem("env.max_episode_steps", None, f"{ENDLESS} has no time limit", "Set one.")


class _Refusing(FakeRunner):
    """A fake runner that does not know every environment."""

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        if spec.env.id == WRONG:
            raise SpecInvalid(PROBLEMS)
        if spec.env.id == BARE:
            raise MissingExtra("it is not installed", path="env.id", hint="Install it.")
        if spec.env.id == ENDLESS:
            warn(WARNING)
        return spec


def _logs(script: Callable[[RunDir, Task], int]) -> Callable[[RunDir, Task], int]:

    def logging(directory: RunDir, task: Task) -> int:
        with directory.log.open("a") as log:
            log.write("begun\nand \u00fcber\n")
        return script(directory, task)

    return logging


def _names(verbs: VerbsUnderTest, query: Query) -> list[str]:
    """The names of all runs that a query finds, page by page."""
    runs: list[Run] = []
    page = verbs.ls(query)
    runs += page.runs
    while page.next is not None:
        assert len(page.runs) == query.limit
        page = verbs.ls(replace(query, after=page.next))
        runs += page.runs
    return [run.name for run in runs]


def _error(ask: Callable[[], object]) -> RlctlError:
    try:
        answer = ask()
    except RlctlError as error:
        return error
    raise AssertionError(f"nothing was refused: {answer!r}")


def alike(
    local: Orchestrator, verbs: VerbsUnderTest, ask: Callable[[VerbsUnderTest], object]
) -> RlctlError:
    """The error that both raise, in the same words."""
    expected, found = _error(lambda: ask(local)), _error(lambda: ask(verbs))
    assert type(found) is type(expected)
    assert (found.message, found.hint, found.path) == (
        expected.message, expected.hint, expected.path
    )  # fmt: skip
    return found

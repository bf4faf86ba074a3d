"""A run that begins with the weights of another one: what is taken, what is refused, and that it
resumes exactly."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.registry.inherited_specs import inherited_here
from rl_orch.core.registry.model_retention import Retention, RetentionLimits
from rl_orch.core.registry.models import Registry
from rl_orch.core.runs import ancestry
from rl_orch.errors import BadInput, Conflict, Damaged, NotFound, RlctlError, SpecInvalid
from rl_orch.io.checkpoints import catalog, checkpoint_files, hash_chain
from rl_orch.io.files import sealed
from rl_orch.io.processes import pids
from rl_orch.io.run.command_socket import Handler, Request, serve
from rl_orch.io.run.directory import MODEL, RunDir
from rl_orch.io.run.events import read
from rl_orch.orchestrator import to_spec
from rl_orch.records import Event, Run, State
from rl_orch.records.jobs import ExportJob, JobTask
from rl_orch.runners.inline import InlineRunner
from rl_orch.runners.job import job
from rl_orch.spec.checks import problems
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker.policies.snapshots import weights_at
from rl_orch.worker.train import run_attempt
from tests.unit.test_live_changes import ALGORITHMS, a_run, a_spec, crash_after, whole_and_broken

Patch = pytest.MonkeyPatch


def newest(directory: RunDir) -> Path:
    return directory.checkpoints / catalog.all_names(directory.checkpoints)[-1]


def begun_with(path: Path, spec: Spec, parts: str = "all", **options: Any) -> Spec:
    """The spec as a launch leaves it, once it has found what it begins with."""
    digest = sealed.manifest_digest(path)
    values = {"from": str(path), "digest": digest, "parts": parts, **options}
    return spec.changed({f"start.{name}": value for name, value in values.items()})


def a_source(tmp_path: Path, algorithm: str, *overrides: str) -> Path:
    source = a_run(tmp_path / "source", a_spec(algorithm, *overrides))
    assert run_attempt(source, 1) == 0
    return newest(source)


def started(directory: RunDir) -> Event:
    return next(event for event in read(directory.events) if event.key == "start")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_begins_with_all_of_another_one_resumes_exactly(
    tmp_path: Path, monkeypatch: Patch, algorithm: str
) -> None:
    path = a_source(tmp_path, algorithm, "train.total_timesteps=128")
    spec = begun_with(path, a_spec(algorithm))
    whole, broken = whole_and_broken(tmp_path, spec, monkeypatch)
    assert hash_chain.compare(whole, broken).difference is None
    told = started(whole)
    assert (told.step, told.value, told.tags["kept"]) == (0, spec.start.digest, [])
    first = checkpoint_files.load(whole.checkpoints / catalog.name_of(0))
    source = checkpoint_files.load(path)
    for name, tensor in source.tensors.items():
        if name.startswith(("policies/", "learner/", "optimizer/", "replay/")):
            assert tensor.tobytes() == first.tensors[name].tobytes(), name
    size = source.document["replay_meta"]["size"]
    assert first.document["replay_meta"]["size"] == size
    assert (size > 0) == (algorithm not in ("ppo", "a2c"))


def test_the_source_is_not_needed_once_there_is_a_checkpoint(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    path = a_source(tmp_path, "dqn")
    directory = a_run(tmp_path / "run", begun_with(path, a_spec("dqn")))
    with monkeypatch.context() as patch:
        crash_after(patch, 1)
        assert run_attempt(directory, 1) == 1
    shutil.rmtree(tmp_path / "source")
    assert run_attempt(directory, 2) == 0


def test_before_that_it_is_needed_as_it_was(tmp_path: Path) -> None:
    path = a_source(tmp_path, "ppo")
    directory = a_run(tmp_path / "run", begun_with(path, a_spec("ppo")))
    path.rename(path.with_name("elsewhere"))
    assert run_attempt(directory, 1) == Damaged.exit_code
    path.with_name("elsewhere").rename(path)
    assert run_attempt(directory, 2) == 0


@pytest.mark.parametrize("algorithm", ["dqn", "td3"])
def test_slow_copies_of_a_policy_that_comes_alone_begin_as_copies(
    tmp_path: Path, algorithm: str
) -> None:
    path = a_source(tmp_path, algorithm)
    loaded = checkpoint_files.load(path)
    policy = {n: t for n, t in loaded.tensors.items() if n.startswith("policies/")}
    alone = checkpoint_files.save(
        tmp_path / "source" / "checkpoints",
        step=999,
        tensors=policy,
        document={},
        meta={"run_id": "r", "attempt": 1},
    )
    directory = a_run(tmp_path / "run", begun_with(alone, a_spec(algorithm), "policy"))
    assert run_attempt(directory, 1) == 0
    first = checkpoint_files.load(directory.checkpoints / catalog.name_of(0)).tensors
    slow = {n: t for n, t in first.items() if n.startswith(("learner/target/", "learner/target_p"))}
    assert slow
    for name, tensor in slow.items():
        inner = name.split("/", 2)[2]
        twin = next(t for n, t in policy.items() if n.endswith(f".{inner}"))
        assert np.array_equal(tensor, twin), name


def test_another_network_is_refused_and_partial_takes_what_fits(tmp_path: Path) -> None:
    path = a_source(tmp_path, "ppo")
    other = a_spec("ppo", "agent.network.hidden_sizes=[8,4]")
    refused = a_run(tmp_path / "refused", begun_with(path, other, "policy"))
    assert run_attempt(refused, 1) == BadInput.exit_code
    reason = list(read(refused.events))[-1].tags["reason"]
    assert (
        "policies/default/actor.layers.1.weight is float32[4, 8] here and float32[2, 8]" in reason
    )
    taking = begun_with(path, other, "policy+optimizer", partial=True)
    directory = a_run(tmp_path / "partial", taking)
    assert run_attempt(directory, 1) == 0
    told = started(directory).tags
    assert "policies/default/actor.layers.0.weight" in told["taken"]
    assert {"policies/default/actor.layers.1.weight", "optimizer/mean"} <= {*told["kept"]}


@pytest.mark.parametrize(
    ("overrides", "parts", "word"),
    [
        (["train.optimizer=rmsprop"], "policy+optimizer", "train.optimizer"),
        (["env.num_envs=2"], "all", "env.num_envs"),
        (["buffer.prioritized=true"], "all", "buffer.prioritized"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(
    tmp_path: Path, overrides: list[str], parts: str, word: str
) -> None:
    path = a_source(tmp_path, "dqn")
    directory = a_run(tmp_path / "run", begun_with(path, a_spec("dqn", *overrides), parts))
    assert run_attempt(directory, 1) == BadInput.exit_code
    assert word in list(read(directory.events))[-1].tags["reason"]


def test_what_a_run_begins_with_is_in_its_hash_and_where_that_is_is_not() -> None:
    plain = a_spec("ppo")
    one, other = ("a" * 64, "b" * 64)
    hashes = {
        plain.changed({"start.from": place, "start.digest": digest}).config_hash
        for place, digest in (("/a", one), ("/b", one), ("/a", other))
    }
    assert len(hashes | {plain.config_hash}) == 3
    partial = plain.changed({"start.digest": one, "start.partial": True})
    assert partial.config_hash not in hashes


def test_parts_may_be_listed() -> None:
    def parts(value: Any) -> str:
        return resolve({"env": {"id": "X-v0"}, "start": {"parts": value}}).start.parts

    assert parts(["policy"]) == parts("policy") == "policy"
    assert parts(["policy", "optimizer"]) == parts("optimizer") == "policy+optimizer"
    for typed in ("policy,optimizer", '["policy", "optimizer"]', "[policy, optimizer]"):
        assert parts(typed) == "policy+optimizer"
    assert parts("all") == parts(["policy", "replay"]) == parts(["replay"]) == "all"
    for wrong in ("everything", [], ["policy", "critic"], 3):
        with pytest.raises(SpecInvalid):
            parts(wrong)


def test_an_external_program_begins_with_weights_of_its_own() -> None:
    spec = a_spec("ppo").changed(
        {"runner.name": "external", "runner.command": ("true",), "start.from": "7"}
    )
    assert [problem.path for problem in problems(spec)] == ["start.from"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Orchestrator:
    """A home with a run that others can begin with, whose gate was set while it trained."""
    made = Orchestrator(tmp_path_factory.mktemp("home"), InlineRunner())
    gate = {"gates.min_return": [None, 1.0], "gates.stability": [True, False]}
    options = gate | {"train.lr": [0.1, 0.01], "train.total_timesteps": [256, 320]}
    note = {"attempt": 1, "at": 0.0, "step": 64, "set": options}
    spec = a_spec("ppo", "name=first", "eval.final_episodes=10")
    run = made.launch(spec, changes=[note]).run
    assert (run.state, run.total_timesteps, run.env_steps) == (State.SUCCEEDED, 320, 320)
    assert run.config_hash == spec.config_hash
    return made


def fine_tuned(home: Orchestrator, *overrides: str) -> Run:
    return home.launch(a_spec("ppo", "eval.final_episodes=10", *overrides)).run


def test_a_gate_that_was_set_judges_and_models_say_how_they_were_trained(
    home: Orchestrator,
) -> None:
    shown = home.show("first")
    assert shown.verdict is not None
    assert shown.verdict.passed
    assert [note["step"] for note in shown.changes] == [64]
    model = shown.models[-1]
    assert model.hyperparams is not None
    assert model.hyperparams["train"]["lr"] == 0.01
    assert model.lineage["set"]["train.lr"] == 0.01


def test_a_run_names_what_it_began_with_and_is_named_there(home: Orchestrator) -> None:
    first = home.get("first")
    run = fine_tuned(home, "start.from=first", "start.parts=policy+optimizer")
    assert run.state is State.SUCCEEDED
    shown = home.show(run.id)
    assert shown.start is not None
    assert shown.taken is not None
    assert (shown.start["run"], shown.start["model"]) == (first.id, first.model_id)
    path = Path(shown.start["path"])
    assert shown.start["digest"] == shown.spec.start.digest == sealed.manifest_digest(path)
    assert all(model.lineage["start"]["run"] == first.id for model in shown.models)
    assert run.id in home.show("first").children
    home.remove(run.id)
    assert run.id not in home.show("first").children


def test_models_paths_and_groups_of_seeds_do_as_well(home: Orchestrator) -> None:
    first = home.get("first")
    by_id = fine_tuned(home, f"start.from={first.model_id}")
    by_path = fine_tuned(home, f"start.from={home.show(by_id.id).spec.start.source}")
    assert by_id.config_hash == by_path.config_hash != first.config_hash
    group = home.launch_group(a_spec("ppo", "start.from=first", "seeds=2"))
    for result in group.results:
        directory = RunDir.of(result.run)
        assert directory.spec().start.digest == RunDir.of(by_id).spec().start.digest
        assert directory.start() is not None


def test_a_run_without_a_model_gives_its_newest_checkpoint(home: Orchestrator) -> None:
    made = fine_tuned(home, "name=modelless", "registry.enable=false")
    source = ancestry.weights(home.models, home, "modelless")
    assert (source.path, source.model) == (newest(RunDir.of(made)), None)


def test_what_does_not_fit_is_refused_before_anything_is_made(home: Orchestrator) -> None:
    before = len(home.ls().runs)
    wrong = (
        ("start.from=first", "agent.network.hidden_sizes=[4]"),
        ("start.from=first", f"start.digest={'0' * 64}"),
        ("start.from=nobody",),
    )
    for overrides in wrong:
        with pytest.raises((SpecInvalid, BadInput)) as refusal:
            fine_tuned(home, *overrides)
        assert refusal.value is not None
    assert len(home.ls().runs) == before


def test_who_asks_a_service_has_no_path_looked_at_outside_of_its_home(
    home: Orchestrator, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside = newest(RunDir.of(home.get("first")))
    outside = shutil.copytree(inside, tmp_path / "step_000000000320")
    (link := home.home / "link").symlink_to(tmp_path)
    out = os.path.relpath(outside, home.home)
    assert ancestry.weights(home.models, home, str(outside)).path == outside
    assert ancestry.weights(home.models, home, str(inside), home=home.home).path == inside
    words = [outside, f"{outside}x", f"./{outside.name}", "~root", "..", link / outside.name]
    words += [f"{home.home}/{out}", f"{home.home}/link/x\0"]
    told = set()
    for word in map(str, words):
        pinned = a_spec("ppo").changed({"start.from": word, "start.digest": "0" * 64})
        assert ancestry.source_word(pinned, home.home) == word
        with pytest.raises(BadInput) as refusal:
            ancestry.weights(home.models, home, word, home=home.home)
        told.add(refusal.value.message.replace(repr(word), ""))
    assert len(told) == 1
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(NotFound, match="no run"):
        ancestry.weights(home.models, home, "a/b", home=home.home)
    link.unlink()


def test_the_process_of_a_job_looks_at_no_path_outside_of_its_home(
    home: Orchestrator, tmp_path: Path
) -> None:
    outside = shutil.copytree(newest(RunDir.of(home.get("first"))), tmp_path / "step_000000000320")
    spec = a_spec("ppo", f"start.from={outside}").model_dump(mode="json")
    place = {"home": str(home.home), "database": str(home.location), "folder": str(tmp_path)}
    for kind in ("profile", "verify_resume"):
        task = JobTask(**place, who="ann", kind=kind, arguments={"spec": spec})
        with pytest.raises(BadInput, match="in the home of the service"):
            job(task, lambda doing, done: None)


def test_a_model_whose_checkpoint_is_gone_gives_its_policy_and_nothing_else(
    home: Orchestrator,
) -> None:
    source = fine_tuned(home, "name=light")
    assert source.model_id is not None
    artefact = Path(str(home.models.get(source.model_id).model_path))
    shutil.rmtree(RunDir.of(source).checkpoints)
    run = fine_tuned(home, "start.from=light")
    shown = home.show(run.id)
    assert shown.start is not None
    assert (shown.start["kind"], shown.start["run"]) == ("artefact", source.id)
    assert (run.state, shown.start["path"]) == (State.SUCCEEDED, str(artefact))
    with pytest.raises(BadInput) as refusal:
        fine_tuned(home, "start.from=light", "start.parts=policy+optimizer")
    assert refusal.value.path == "start.parts"


@contextmanager
def listening(home: Orchestrator, handle: Handler) -> Iterator[Run]:
    """A run that is at work, as far as anybody can tell."""
    lease = pids.lease()
    run = home.create(a_spec("ppo", "name=listening"), lease=lease)
    home.store.save(run.model_copy(update={"state": State.RUNNING}), lease=lease)
    with closing(serve(Path(run.path), handle)):
        yield run
    home.store.save(run.model_copy(update={"state": State.STOPPED}), lease=lease)
    home.store.release(run.id, lease=lease)


def test_what_a_run_is_to_load_by_name_has_critics_and_optimiser(home: Orchestrator) -> None:
    first, heard = home.get("first"), list[dict[str, Any]]()

    def hear(request: Request) -> dict[str, Any]:
        heard.append(request.arguments)
        return {}

    with listening(home, hear) as run:
        home.command(run.id, "load", {"source": "first"})
        home.command(run.id, "load", {"source": str(first.model_id)})
    (path,) = {Path(arguments["source"]) for arguments in heard}
    assert path.parent == RunDir.of(first).checkpoints
    start = weights_at(path, ("policy", "optimizer"))
    assert any(name.startswith("optimizer/") for name in start.snapshot.tensors)


def test_a_damaged_model_whose_checkpoint_is_gone_is_not_taken_for_one_that_is_there(
    home: Orchestrator,
) -> None:
    made = fine_tuned(home, "name=damaged")
    assert made.model_id is not None
    artefact = Path(home.models.get(made.model_id).model_path)
    shutil.rmtree(RunDir.of(made).checkpoints)
    (artefact / MODEL).write_text("{}")
    assert ancestry.files(ancestry.weights(home.models, home, "damaged"), ("policy",)) == artefact
    with pytest.raises((BadInput, Damaged)):
        fine_tuned(home, "start.from=damaged", "start.parts=policy+optimizer")


def test_a_run_that_let_its_replay_go_gives_the_rest(home: Orchestrator) -> None:
    easy = ("gates.min_return=1", "gates.stability=false", "eval.final_episodes=10")
    source = home.launch(a_spec("dqn", "name=off_policy", *easy)).run
    assert (source.state, home.show(source.id).let_go is None) == (State.SUCCEEDED, False)
    begin = ("start.from=off_policy", "start.parts=policy+optimizer")
    assert home.launch(a_spec("dqn", *begin, *easy)).run.state is State.SUCCEEDED
    with pytest.raises(BadInput) as refusal:
        home.launch(a_spec("dqn", "start.from=off_policy", "start.parts=all", *easy))
    assert refusal.value.path == "start.parts"


def carried_out(home: Orchestrator, run: Run) -> Run:
    """A queued run at its end."""
    lease = pids.lease()
    assert home.store.take_lease(run.id, held_by=None, lease=lease)
    supervisor = home.supervisor(home.store.get(run.id), lease)
    while supervisor.run.active:
        supervisor.tick()
    home.store.release(run.id, lease=lease)
    return home.get(run.id)


def test_a_run_that_has_yet_to_begin_finds_its_weights_in_a_home_that_was_moved(
    tmp_path: Path,
) -> None:
    old = Orchestrator(tmp_path / "home", InlineRunner())
    old.launch(a_spec("ppo", "name=first"))
    old.carry_out(ExportJob(policy="first", format="bundle", out=str(old.home / "own" / "bundle")))
    sources = ("first", str(old.home / "own" / "bundle"))
    queued = [old.submit(a_spec("ppo", f"start.from={word}")).runs[0] for word in sources]
    stopped = old.submit(a_spec("ppo", "start.from=first")).runs[0]
    assert old.stop(stopped.id).state is State.STOPPED
    old.home.rename(tmp_path / "moved")
    home = Orchestrator(tmp_path / "moved", InlineRunner())
    assert home.resume(stopped.id, overrides=["name=again"]).run.state is State.SUCCEEDED
    assert [carried_out(home, run).state for run in queued] == [State.SUCCEEDED] * 2
    shutil.rmtree(home.home / "own")
    late = home.submit(a_spec("ppo", "start.from=first")).runs[0]
    source = home.get("first")
    (Path(source.path) / "checkpoints").rename(tmp_path / "checkpoints")
    assert carried_out(home, late).state is State.FAILED


def test_a_run_begins_with_what_it_waited_for_as_that_was_at_its_end(home: Orchestrator) -> None:
    easy = ("gates.min_return=1", "gates.stability=false", "eval.final_episodes=10")
    (source,) = home.submit(a_spec("dqn", "name=teacher", *easy)).runs
    after = ("start.from=teacher", "schedule.after=[teacher]")
    specs = [a_spec("dqn", *after, *easy, *more) for more in (["start.parts=all"], ["name=x"])]
    runs = [home.submit(spec).runs[0] for spec in specs]
    home.check(specs[0])
    assert [home.show(run.id).spec.start.digest for run in runs] == [None, None]
    source = carried_out(home, source)
    assert (source.state, home.show(source.id).let_go) == (State.SUCCEEDED, None)
    with pytest.raises(Conflict):
        home.remove(source.id)
    for run in runs:
        ended = carried_out(home, run)
        shown = home.show(run.id)
        assert shown.start is not None
        assert (ended.state, shown.start["run"]) == (State.SUCCEEDED, source.id)
        path = Path(shown.start["path"])
        assert path.parent == RunDir.of(source).checkpoints
        assert shown.spec.start.digest == sealed.manifest_digest(path) == shown.start["digest"]
        assert ended.config_hash == shown.spec.config_hash == RunDir.of(run).noted_hash()
        is_last = run.id == runs[-1].id
        assert (home.show(source.id).let_go is not None) is is_last
    assert home.show(source.id).children == tuple(run.id for run in runs)
    home.remove(source.id)


def test_a_source_lets_go_as_soon_as_the_last_that_waits_has_begun_or_was_stopped(
    home: Orchestrator,
) -> None:
    easy = ("gates.min_return=1", "gates.stability=false", "eval.final_episodes=10")
    (source,) = home.submit(a_spec("dqn", "name=awaited", *easy)).runs
    after = ("start.from=awaited", "schedule.after=[awaited]")
    (run,) = home.submit(a_spec("dqn", *after)).runs
    source = carried_out(home, source)
    assert (source.state, home.show(source.id).let_go) == (State.SUCCEEDED, None)
    assert home.stop(run.id).state is State.STOPPED
    assert home.show(source.id).let_go is not None


def test_a_run_whose_source_ended_without_a_policy_fails_and_says_so(home: Orchestrator) -> None:
    (source,) = home.submit(a_spec("ppo", "name=barren")).runs
    (run,) = home.submit(a_spec("ppo", "start.from=barren", "schedule.after=[barren]")).runs
    home.stop(source.id)
    ended = carried_out(home, run)
    assert (ended.state, "has no model" in ended.reason) == (State.FAILED, True)


def test_what_queued_runs_begin_with_stays_until_they_have_begun(home: Orchestrator) -> None:
    made = fine_tuned(home, "name=wanted", "checkpoint.keep_last=1")
    assert made.model_id is not None
    directory, limits = RunDir.of(made), RetentionLimits(keep_top_n=0)
    (run,) = home.submit(a_spec("ppo", f"start.from={made.model_id}")).runs
    start = home.show(run.id).start
    assert start is not None
    assert directory.pinned() == {start["checkpoint"]}
    spared = {each.model_id for each in Retention(home.store).prune(limits, dry_run=True).spared}
    assert made.model_id in spared
    with pytest.raises(Conflict):
        home.remove(made.id)
    carried_out(home, run)
    assert directory.pinned() == set()
    spared = {each.model_id for each in Retention(home.store).prune(limits, dry_run=True).spared}
    assert made.model_id not in spared
    home.remove(made.id)
    longer = home.resume(run.id, overrides=["train.total_timesteps=320"]).run
    assert (longer.state, longer.env_steps) == (State.SUCCEEDED, 320)


def test_a_run_is_not_queued_where_it_cannot_be_noted_with_what_it_begins_with(
    home: Orchestrator,
) -> None:
    made = fine_tuned(home, "name=unmarked")
    (RunDir.of(made).path / "children").mkdir()
    before = [run.id for run in home.ls().runs]
    with pytest.raises(RlctlError, match="children"):
        home.submit(a_spec("ppo", "start.from=unmarked"))
    assert [run.id for run in home.ls().runs] == before


def test_no_run_is_removed_where_another_comes_meanwhile_that_begins_with_its_weights(
    home: Orchestrator, monkeypatch: Patch
) -> None:
    made = fine_tuned(home, "name=raced")
    forget, queued = Registry.forget_run, list[Run]()

    def forget_late(registry: Registry, run_id: str, *, files: Callable[[], None]) -> None:
        queued.extend(home.submit(a_spec("ppo", "start.from=raced")).runs)
        forget(registry, run_id, files=files)

    monkeypatch.setattr(Registry, "forget_run", forget_late)
    with pytest.raises(Conflict):
        home.remove(made.id)
    monkeypatch.undo()
    assert RunDir.of(made).children() == [run.id for run in queued]
    assert carried_out(home, queued[0]).state is State.SUCCEEDED
    home.remove(made.id)


@pytest.mark.parametrize(("word", "error"), [(f"upload:{'0' * 24}", BadInput), ("first", Damaged)])
def test_weights_that_cannot_be_read_are_bad_input_of_who_sent_them(
    home: Orchestrator, monkeypatch: pytest.MonkeyPatch, word: str, error: type[RlctlError]
) -> None:
    source = home._weights("first")
    monkeypatch.setattr(home, "_weights", lambda _word: source)

    def hear(_request: Request) -> dict[str, Any]:
        raise Damaged("tensors cannot be read")

    with listening(home, hear) as run, pytest.raises(error, match="tensors cannot be read"):
        home.command(run.id, "load", {"source": word})


def test_a_bundle_gives_its_policy(home: Orchestrator, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    home.carry_out(ExportJob(policy="first", format="bundle", out=str(bundle)))
    run = fine_tuned(home, f"start.from={bundle}")
    shown = home.show(run.id)
    assert shown.start is not None
    assert (run.state, shown.start["kind"]) == (State.SUCCEEDED, "bundle")
    with pytest.raises(SpecInvalid):
        fine_tuned(home, f"start.from={bundle}", "start.parts=policy+optimizer")


@pytest.mark.parametrize("word", ["./firstx", "firstx", "{folder}/firstx", "checkpoint"])
def test_files_bring_their_spec_and_need_no_more_than_their_folder_s_name(
    home: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("RLCTL_HOME", str(home.home))
    bundle, first = tmp_path / "firstx", home.show("first")
    home.carry_out(ExportJob(policy="first", format="bundle", out=str(bundle)))
    checkpoint = newest(RunDir.of(first.run))
    named = str(checkpoint) if word == "checkpoint" else word.format(folder=tmp_path)
    monkeypatch.chdir(tmp_path)
    typed = SpecArguments([f"start.from={named}", "train.total_timesteps=64"])
    spec = typed.spec(partial(inherited_here, home))
    assert spec.env == first.spec.env
    assert spec.start.source == str(checkpoint if word == "checkpoint" else bundle)
    assert to_spec({"start.from": named, "train.total_timesteps": 64}) == spec.changed(
        {"start.from": named}
    )
    assert home.check(spec.changed({"start.from": named})).start.source == spec.start.source


def test_of_files_without_their_run_the_error_says_what_to_name(
    home: Orchestrator, tmp_path: Path
) -> None:
    copy = shutil.copytree(newest(RunDir.of(home.get("first"))), tmp_path / "copied" / "step_1")
    with pytest.raises(NotFound, match=r"spec\.yaml") as refused:
        inherited_here(home, str(copy))
    assert "--env" in str(refused.value.hint)

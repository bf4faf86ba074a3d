"""Models as artefacts: what acts, sealed apart from the checkpoint, which nobody needs any more."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rl_orch import orchestrator
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.policies import evaluation
from rl_orch.core.registry import references, registration, sealing
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput, Damaged, NotFound
from rl_orch.io.checkpoints import catalog, checkpoint_files, external
from rl_orch.io.files import sealed
from rl_orch.io.files.tensors import decode
from rl_orch.io.policies import artefacts
from rl_orch.io.policies.bundles import POLICY
from rl_orch.io.run.directory import MODEL, RunDir
from rl_orch.records import Event, EventKind, ModelVersion
from rl_orch.records.tasks import PolicyFiles
from rl_orch.testing import a_spec, seal_checkpoint
from rl_orch.worker.policies import sources
from rl_orch.worker.policies.load import from_checkpoint
from tests.counting import bytes_read
from tests.models import PlayedAs, Shop, a_report

TRANSITIONS = 20_000
OFF_POLICY = (
    "agent.algorithm=dqn",
    "agent.network.hidden_sizes=[8]",
    "train.engine=torch",
    "env.num_envs=32",
    "rollout.steps=16",
    f"train.total_timesteps={TRANSITIONS}",
    f"train.learning_starts={TRANSITIONS - 100}",
    f"buffer.size={TRANSITIONS}",
    f"eval.every={TRANSITIONS // 2}",
    "eval.episodes=2",
    "eval.final_episodes=10",
    "gates.min_return=1",
    "gates.stability=false",
    "checkpoint.keep_training_state=always",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Orchestrator:
    """A home with one run of an algorithm that keeps its experience."""
    home = orchestrator.connect(tmp_path_factory.mktemp("home"), runner="inline")
    assert home.launch(a_spec(*OFF_POLICY)).succeeded
    return home


@pytest.fixture
def home(trained: Orchestrator, tmp_path: Path) -> Orchestrator:
    """A copy of that home."""
    shutil.copytree(trained.home, tmp_path / "home")
    return orchestrator.connect(tmp_path / "home", runner="inline")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, Store(tmp_path / "rlctl.db"))


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder: which one it is, and when it was written."""
    entries = ((path, path.stat()) for path in sorted(root.rglob("*")))
    return {str(path): (facts.st_ino, facts.st_mtime_ns) for path, facts in entries}


def test_an_artefact_holds_what_acts_and_nothing_that_only_trains(home: Orchestrator) -> None:
    run = home.get("last")
    for model in home.registry.of_run(run.id):
        path = Path(model.model_path)
        assert path.parent == RunDir.of(run).models
        artefact = artefacts.read(path)
        policy = artefact.document.policies[POLICY]
        ours = decode(artefact.files[policy.file], path, policy.file, noun=artefacts.NOUN)
        known = checkpoint_files.load(RunDir.of(run).checkpoints / path.name).tensors
        assert set(ours) == {name for name in known if name.startswith("policies/")} < set(known)
        assert all(np.array_equal(ours[name], known[name]) for name in ours)
        assert artefact.spec == RunDir.of(run).spec()
        assert policy.observation_space is not None
        assert policy.action_space == {"kind": "Discrete", "n": 2, "start": 0}
        assert model.digest == sealed.manifest_digest(path)
        assert model.checkpoint_digest == artefact.document.checkpoint_digest


def test_models_need_no_checkpoint_of_their_run(home: Orchestrator) -> None:
    run = home.get("last")
    model = home.registry.get(run.model_id or 0)
    checkpoint = RunDir.of(run).checkpoints / Path(model.model_path).name
    before = from_checkpoint(RunDir.of(run).spec(), checkpoint)
    shutil.rmtree(RunDir.of(run).checkpoints)
    shutil.rmtree(RunDir.of(run).replay)
    assert home.models.verify().ok
    assert home.models.validate(model.id).passed
    assert home.models.promote(model.id, "production").model_id == model.id
    after = sources.load(Path(model.model_path))
    assert after.step == before.step
    assert after.tensors.keys() == {n for n in before.tensors if n.startswith("policies/")}
    named = PolicyFiles(directory=run.path, checkpoint=checkpoint.name)
    with sources.playable(named) as playable:
        assert (playable.step, playable.name) == (before.step, checkpoint.name)
    alone = Path(run.path).with_name("alone")
    shutil.copytree(model.model_path, alone)
    assert sources.load(alone).spec.env.id == "CartPole-v1"
    assert not home.models.prune(keep_top_n=1).removed, "it has an alias"
    assert home.models.verify().ok


def test_a_model_is_played_and_judged_by_the_spec_that_was_sealed_with_it(
    home: Orchestrator,
) -> None:
    run = home.get("last")
    directory, model = RunDir.of(run), home.registry.get(run.model_id or 0)
    path, sealed_spec = Path(model.model_path), directory.spec()
    named = PolicyFiles(directory=run.path, checkpoint=f"models/{path.name}")
    other = {"agent.network.activation": "relu", "gates.min_return": 1e6}
    directory.write_spec(sealed_spec.changed(other | {"env.max_episode_steps": 7}))
    assert sources.spec_of(named) == artefacts.spec_of(path) == sealed_spec
    with sources.playable(named) as playable:
        assert playable.spec == sealed_spec
    assert home.models.validate(model.id).passed
    directory.spec_file.unlink()
    with sources.playable(named) as playable:
        assert playable.spec == sealed_spec
    source = references.source(home.models, home, str(model.id))
    assert evaluation.named(source).checkpoint == named.checkpoint
    assert evaluation.target_of(source) == sealed_spec.gates.min_return


def test_a_model_is_not_played_where_spaces_are_others_than_it_was_sealed_with(
    home: Orchestrator,
) -> None:
    path = Path(home.registry.get(home.get("last").model_id or 0).model_path)
    artefact = artefacts.read(path)
    elsewhere = artefact.spec.changed({"env.id": "Acrobot-v1"}).model_dump(mode="json")
    document = artefact.document.model_copy(update={"spec": elsewhere})
    files = artefact.files | {MODEL: document.model_dump_json().encode()}
    sealed.write(path, files, noun=artefacts.NOUN)
    named = PolicyFiles(directory=str(path.parents[1]), checkpoint=f"models/{path.name}")
    with pytest.raises(BadInput, match="observation_space"), sources.playable(named):
        pass


def test_a_model_is_called_one_where_its_files_are_damaged_or_gone(home: Orchestrator) -> None:
    model = home.registry.get(home.get("last").model_id or 0)
    path = Path(model.model_path)
    (path / "policy-default.safetensors").write_bytes(b"others")
    with pytest.raises(Damaged, match=f"^model {path.name}"):
        checkpoint_files.load(path)
    shutil.rmtree(path)
    with pytest.raises(NotFound, match="model"):
        home.models.promote(model.id, "production")


def test_checkpoints_that_were_pruned_meanwhile_are_passed_over_in_silence(
    home: Orchestrator, caplog: pytest.LogCaptureFixture
) -> None:
    run = home.get("last")
    directory, known = RunDir.of(run), home.registry.of_run(run.id)
    report = directory.read_report(Path(known[0].model_path).name)
    assert report is not None
    home.store.take_lease(run.id, held_by=None, lease="again")
    gone = directory.checkpoints / catalog.name_of(77)
    registration.register(home.registry, run, directory.spec(), gone, report, lease="again")
    assert home.registry.of_run(run.id) == known
    assert caplog.records == []


def test_no_replay_is_read_to_promote_or_to_verify(home: Orchestrator) -> None:
    run = home.get("last")
    replay = sum(path.stat().st_size for path in RunDir.of(run).replay.iterdir())
    assert replay > TRANSITIONS * 20
    promote = bytes_read(lambda: home.models.promote(run.model_id or 0, "production"))
    verify = bytes_read(home.models.verify)
    assert max(promote, verify) < replay / 2


def test_a_checkpoint_is_sealed_once_and_another_in_its_place_anew(tmp_path: Path) -> None:
    directory, spec = RunDir(tmp_path / "run"), a_spec()
    directory.create(spec, {"run_id": "run"})
    checkpoint = seal_checkpoint(directory, catalog.name_of(5))
    path = artefacts.seal(checkpoint, spec)
    digest, seen = sealed.manifest_digest(path), files_of(path)
    assert artefacts.seal(checkpoint, spec) == path
    assert files_of(path) == seen
    forged = artefacts.read(path).files | {"policy-default.safetensors": b"others"}
    sealed.write(path, forged, noun=artefacts.NOUN)
    artefacts.seal(checkpoint, spec, anew=True)
    assert sealed.manifest_digest(path) == digest
    (path / MODEL).write_bytes(b"{}")
    assert artefacts.seal(checkpoint, spec) == path
    assert sealed.manifest_digest(path) == digest
    other = seal_checkpoint(RunDir(tmp_path / "other"), checkpoint.name)
    shutil.rmtree(checkpoint)
    shutil.copytree(other, checkpoint)
    artefacts.seal(checkpoint, spec)
    assert artefacts.checkpoint_digest(path) == sealed.manifest_digest(other)
    shutil.rmtree(checkpoint)
    assert artefacts.seal(checkpoint, spec) == path


def test_a_model_that_is_sealed_anew_stays_judged(shop: Shop) -> None:
    model = shop.a_model("r-1")
    run = shop.get("r-1")
    assert model.validated
    checkpoint = RunDir.of(run).checkpoints / Path(model.model_path).name
    shop.store.take_lease(run.id, held_by=None, lease="again")
    report = a_report(500.0, env_id=model.env_id, checkpoint=checkpoint.name)
    later = a_spec("gates.min_return=99")  # Another release writes another spec of the same.
    path = artefacts.seal(checkpoint, later, anew=True)
    shop.registry.register(run, later, path, report, lease="again", git_commit=None)
    again = shop.registry.get(model.id)
    assert (again.validated, again.digest != model.digest) == (True, True)
    assert shop.models().promote(model.id, "production").model_id == model.id


@pytest.mark.parametrize("spaces", [[], {"default": 3}, {"default": {"action_space": 3}}])
def test_spaces_in_another_form_cost_nothing_but_themselves(tmp_path: Path, spaces: object) -> None:
    directory, spec = RunDir(tmp_path / "run"), a_spec()
    directory.create(spec, {"run_id": "run"})
    checkpoint = seal_checkpoint(directory, catalog.name_of(5))
    files = sealed.read(checkpoint, catalog.FILES, noun=catalog.NOUN)
    state = json.dumps({"trainer_state": {"spaces": spaces}}).encode()
    sealed.write(checkpoint, files | {catalog.STATE: state}, noun=catalog.NOUN)
    policies = artefacts.read(artefacts.seal(checkpoint, spec)).document.policies
    assert policies[POLICY].action_space is None


def test_files_that_cannot_be_written_or_deleted_cost_no_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shop.a_model("r-1", judged=False)
    run, name = shop.get("r-1"), Path(model.model_path).name
    shop.store.take_lease(run.id, held_by=None, lease="again")
    monkeypatch.setattr(artefacts, "seal", refused_by_the_disk)
    monkeypatch.setattr(artefacts, "remove", refused_by_the_disk)
    tags = {"removed": [name]}
    saved = Event(
        seq=1,
        attempt=1,
        ts=0.0,
        run=run.id,
        step=100,
        kind=EventKind.CHECKPOINT,
        key="saved",
        value=name,
        tags=tags,
    )
    RunDir.of(run).write_report(name, a_report(1.0, env_id=model.env_id, checkpoint=name))
    spec = RunDir.of(run).spec()
    registration.register_best(shop.registry, run, spec, name, lease="again")
    registration.forget_pruned(shop.registry, run, spec, saved, lease="again")
    assert shop.registry.of_run(run.id) == []


def refused_by_the_disk(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_what_an_external_program_saved_is_sealed_whole_and_goes_whole(tmp_path: Path) -> None:
    directory, spec = RunDir(tmp_path / "run"), a_spec()
    directory.create(spec, {"run_id": "run"})
    written = tmp_path / "theirs"
    (written / "inner").mkdir(parents=True)
    (written / "inner" / "weights").write_bytes(b"weights")
    facts = {"run": "run", "step": 5, "attempt": 1, "seq": 0, "kept": (), "best": None}
    facts |= {"best_said": False, "saved": {}, "created_at": 0.0}
    checkpoint = directory.checkpoints / catalog.name_of(5)
    external.save(checkpoint, written, facts)
    path = artefacts.seal(checkpoint, spec)
    shutil.rmtree(directory.checkpoints)
    artefacts.verify(path)
    payload = external.payload(path, external.load(path))
    assert (payload / "inner" / "weights").read_bytes() == b"weights"
    (payload / "inner" / "weights").chmod(0o600)
    (payload / "inner" / "weights").write_bytes(b"Weights")
    with pytest.raises(Damaged):
        artefacts.verify(path)
    artefacts.remove(path)
    assert list(directory.models.iterdir()) == []


def test_a_model_with_an_alias_is_not_replaced_by_another_checkpoint(shop: Shop) -> None:
    model = shop.a_model("r-1")
    shop.models().promote(model.id, "production")
    seen = files_of(Path(model.model_path))
    run = shop.get("r-1")
    checkpoint = RunDir.of(run).checkpoints / Path(model.model_path).name
    shutil.rmtree(checkpoint)
    shutil.copytree(seal_checkpoint(RunDir(shop.home / "another"), checkpoint.name), checkpoint)
    shop.store.take_lease(run.id, held_by=None, lease="again")
    report = a_report(1.0, env_id=model.env_id, checkpoint=checkpoint.name)
    spec = RunDir.of(run).spec()
    registration.register(shop.registry, run, spec, checkpoint, report, lease="again")
    assert files_of(Path(model.model_path)) == seen
    assert shop.models().verify().ok


def as_before(shop: Shop) -> tuple[ModelVersion, ModelVersion]:
    """Two models of an earlier release, the first of which is production."""
    first, second = (shop.a_model(name, sealed=False) for name in ("first", "second"))
    models = shop.models(PlayedAs({first.id: 500.0, second.id: 510.0}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rl_orch.core.registry.verbs.as_artefact", lambda _store, model: model)
        models.promote(first.id, "production")
        models.promote(second.id, "staging")
        models.promote(second.id, "production")
        models.rollback("production")
    return models.get(first.id), models.get(second.id)


def test_a_model_of_an_earlier_release_is_sealed_as_it_is_used(shop: Shop) -> None:
    first, second = as_before(shop)
    player = PlayedAs({})
    models = shop.models(player)
    assert models.promote(second.id, "production").previous_id == first.id
    assert player.asked == []  # The verdict of then goes on to count.
    for before in (first, second):
        after = models.get(before.id)
        assert (after.checkpoint_digest, after.validated) == (before.digest, True)
        assert Path(after.model_path).parent.name == "models"
        assert after.aliases != before.aliases
    shutil.rmtree(Path(second.model_path))
    assert models.verify().ok


def seal(shop: Shop) -> None:
    for model in shop.models().list():
        sealing.as_artefact(shop.store, model)


def test_verifying_changes_nothing_whether_models_are_sealed_or_not(shop: Shop) -> None:
    as_before(shop)
    models = shop.models()
    for folder in ("checkpoints", "models"):
        seen, rows = files_of(shop.home / "runs"), models.list()
        assert {Path(model.model_path).parent.name for model in rows} == {folder}
        assert models.verify().ok
        assert (files_of(shop.home / "runs"), models.list()) == (seen, rows)
        seal(shop)


def test_a_model_whose_files_changed_is_not_sealed(shop: Shop) -> None:
    model = shop.a_model("r-1", sealed=False)
    path = Path(model.model_path)
    files = {catalog.TENSORS: b"changed", catalog.STATE: b"{}"}
    sealed.write(path, files, noun=catalog.NOUN)
    assert [fault.kind for fault in shop.models().verify().faults] == ["changed"]
    seal(shop)
    assert not RunDir(path.parents[1]).models.exists()


def power_cut(*_: object, **__: object) -> None:
    raise SystemExit("no power")


@pytest.mark.parametrize(
    "where", [(sealing, "_exchange"), (sealed, "_publish"), (sealed, "_write_file")]
)
def test_sealing_that_was_cut_short_is_finished_by_the_next_use(
    shop: Shop, where: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = as_before(shop)
    with monkeypatch.context() as patch:
        patch.setattr(*where, power_cut)
        with pytest.raises(SystemExit):
            seal(shop)
    assert shop.models().get(first.id) == first
    assert sources_of(first) <= {first.model_path}
    seal(shop)
    assert shop.models().verify().ok
    assert Path(shop.models().get(first.id).model_path).parent.name == "models"
    for model in shop.models().list():
        assert not [*Path(model.model_path).parent.glob(".tmp-*")]


def sources_of(model: ModelVersion) -> set[str]:
    """The path that a model's files are looked for at, if they are whole."""
    artefacts.verify(Path(model.model_path))
    return {model.model_path}


def test_a_home_that_cannot_be_written_stays_readable(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = as_before(shop)
    monkeypatch.setattr(Store, "obstacle", "is on a disk that cannot be written to")
    seen = files_of(shop.home / "runs")
    assert shop.models().verify().ok
    seal(shop)
    assert shop.models().get("production") == first
    assert files_of(shop.home / "runs") == seen


@pytest.mark.parametrize("use", ["validate", "promote"])
def test_every_use_seals(shop: Shop, use: str) -> None:
    model = shop.a_model("r-1", sealed=False)
    uses: dict[str, Callable[[], object]] = {
        "validate": lambda: shop.models().validate(model.id),
        "promote": lambda: shop.models().promote(model.id, "production"),
    }
    uses[use]()
    assert artefacts.is_artefact(Path(shop.models().get(model.id).model_path))

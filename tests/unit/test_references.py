"""How a word comes to mean a policy: ids, aliases, the best, runs, paths."""

import re
from pathlib import Path

import pytest

from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.references import kind_of, path_of, refuse_file, source
from rl_orch.core.store.runs import Store
from rl_orch.errors import Ambiguous, BadInput, NotFound
from rl_orch.io.checkpoints import external
from rl_orch.io.files import sealed
from rl_orch.io.run.directory import RunDir
from rl_orch.records import State
from tests.models import GATED, Shop, a_report


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A home without a model."""
    return Shop(tmp_path / "home", Store(tmp_path / "rlctl.db"))


def test_every_way_to_name_a_model_leads_to_its_files(shop: Shop) -> None:
    poor, good = shop.a_model("poor", 200.0), shop.a_model("good", 500.0)
    models = shop.models()
    models.promote(good.id, "production")
    for word in (
        str(good.id),
        "production",
        "production@CartPole-v1",
        "best@CartPole-v1",
        "best",
        "good",
    ):
        found = source(models, shop, word)
        assert (found.path, found.kind) == (Path(good.model_path), "artefact")
        assert found.model is not None
        assert found.model.id == good.id
        assert found.run == shop.get("good")
    assert source(models, shop, "poor").path == Path(poor.model_path)


def test_a_path_is_taken_as_it_is(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shop.a_model("r-1")
    found = source(shop.models(), shop, model.model_path)
    assert (found.path, found.model, found.run) == (Path(model.model_path), None, None)
    monkeypatch.chdir(tmp_path)
    relative = str(Path(model.model_path).relative_to(tmp_path))
    assert source(shop.models(), shop, relative) == found
    assert source(shop.models(), shop, f"./{relative}") == found


def test_each_form_of_a_policy_is_known_by_its_files(tmp_path: Path) -> None:
    sealed.write(tmp_path / "bundle", {"bundle.json": b"{}"}, noun="bundle")
    sealed.write(tmp_path / "deposit", {external.DEPOSIT: b"{}"}, noun="checkpoint")
    assert kind_of(tmp_path / "bundle") == "bundle"
    assert kind_of(tmp_path / "deposit") == "deposit"
    with pytest.raises(BadInput, match=r"neither state\.json nor bundle\.json"):
        kind_of(tmp_path)
    with pytest.raises(NotFound, match="there is no policy at"):
        kind_of(tmp_path / "nothing")


def test_an_alias_comes_before_a_run_of_the_same_name(shop: Shop) -> None:
    shop.a_model("staging")
    other = shop.a_model("other")
    shop.models().promote(other.id, "staging")
    found = source(shop.models(), shop, "staging").model
    assert found is not None
    assert found.id == other.id


def test_of_a_run_without_a_judged_model_the_best_is_meant(shop: Shop) -> None:
    model = shop.a_model("r-1", state=State.STOPPED, judged=False)
    with shop.store.writing() as connection:
        connection.exec_driver_sql("UPDATE runs SET model_id = NULL")
    found = source(shop.models(), shop, "r-1").model
    assert found is not None
    assert found.id == model.id
    shop.registry.forget_run("r-1")
    with pytest.raises(NotFound, match="run r-1 is stopped and has no model"):
        source(shop.models(), shop, "r-1")


def test_a_run_whose_models_were_removed_says_so_and_names_what_is_left(shop: Shop) -> None:
    model = shop.a_model("r-1")
    shop.registry.forget_run("r-1")
    with pytest.raises(NotFound, match=f"any more: model {model.id} was removed") as raised:
        source(shop.models(), shop, "r-1")
    assert f"r-1/checkpoints/{Path(model.model_path).name}" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("7", "no model 7"),
        ("9" * 40, "no model 999"),
        ("nobody", "no policy 'nobody'; must be a model's id, an alias, best, best@ENV"),
        ("production@CartPole-v1", "nobody has the alias 'production@CartPole-v1'"),
        ("best@Pendulum-v1", "no validated model of Pendulum-v1; there are some of: CartPole-v1"),
        ("/no/where", "there is no policy at '/no/where'"),
        ("", "no policy ''"),
    ],
)
def test_what_means_nothing_is_said_to(shop: Shop, word: str, said: str) -> None:
    shop.a_model("r-1")
    with pytest.raises(NotFound, match=re.escape(said)):
        source(shop.models(), shop, word)


def test_a_file_is_no_policy_and_how_it_becomes_one_is_said(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shop.a_model("r-1").model_path)
    monkeypatch.chdir(tmp_path)
    for name in ("sb3.zip", "graph.onnx", "1"):
        (tmp_path / name).touch()
    for word in ("sb3.zip", "./sb3.zip", str(tmp_path / "sb3.zip")):
        for refuse in (refuse_file, path_of):
            with pytest.raises(BadInput, match=f"{word!r} is a file of Stable-B") as refusal:
                refuse(word)
        assert refusal.value.hint == f"`rlctl registry import {word} --env ENV` takes it in first."
    for word in ("./sb3.zip", f"../{tmp_path.name}/sb3.zip"):
        with pytest.raises(BadInput, match="is a file of Stable-Baselines3"):
            source(shop.models(), shop, word)
    with pytest.raises(BadInput, match=r"'graph\.onnx' is a file, and no policy"):
        refuse_file("graph.onnx")
    with pytest.raises(BadInput) as refusal:
        source(shop.models(), shop, str(model / "model.json"))
    assert refusal.value.hint == f"Name its folder: {str(model)!r}"
    refuse_file("1")
    assert source(shop.models(), shop, "1").path == model


def test_a_group_is_no_policy_and_its_best_is_named(shop: Shop) -> None:
    for name, mean in (("g-s1", 400.0), ("g-s2", 500.0), ("g-s3", 50.0)):
        shop.a_model(name, mean, group="g")
    best = shop.get("g-s2").model_id
    for word in ("g", "cartpole"):
        with pytest.raises(BadInput, match=f"{word!r} is a group of 3 runs") as refusal:
            source(shop.models(), shop, word)
        assert refusal.value.hint == (
            f"The best of them is model {best}, of run g-s2: name it as {best}."
        )
        with pytest.raises(BadInput, match="is a group"):
            shop.models().promote(word, "production")
    found = source(shop.models(), shop, "g-s3").model
    assert found is not None
    assert found.run_id == "g-s3"


def test_a_path_that_leads_nowhere_is_told_as_a_path(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shop.a_model("r-1").model_path)
    monkeypatch.chdir(tmp_path)
    relative = path.relative_to(tmp_path).with_name("step_000000000101")
    for word in (str(relative), f"./{relative}", str(tmp_path / relative)):
        with pytest.raises(NotFound, match=f"no policy at {word!r}: '{relative.name}'") as refusal:
            source(shop.models(), shop, word)
        assert refusal.value.hint == f"Did you mean {path.name!r}?"
    with pytest.raises(NotFound, match="'nowhere' is not in") as refusal:
        source(shop.models(), shop, "nowhere/at/all")
    assert "the path of a checkpoint or bundle" in str(refusal.value.hint)


def test_the_best_is_of_no_environment_among_several_however_many_models_there_are(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.a_model("swing", env_id="Pendulum-v1")
    shop.a_model("unjudged", env_id="Acrobot-v1", judged=False)
    shop.a_model("newest")
    find = Registry.find
    monkeypatch.setattr(Registry, "find", lambda self, query: find(self, query)[:1])
    with pytest.raises(BadInput, match="models of CartPole-v1, Pendulum-v1; returns"):
        source(shop.models(), shop, "best")


def test_no_model_is_the_best_of_different_tasks(shop: Shop) -> None:
    plain = shop.a_model("plain", 200.0)
    assert source(shop.models(), shop, "best").model == plain
    wrapped = "env.wrappers=[{name:TransformReward,scale:2}]"
    doubled = shop.a_model("doubled", 400.0, gates=(*GATED, wrapped))
    shop.a_model("lower", 300.0, gates=(*GATED, wrapped))
    for word in ("best", "best@CartPole-v1"):
        with pytest.raises(Ambiguous, match="play different tasks") as refused:
            source(shop.models(), shop, word)
        assert f"model {doubled.id}, with env.wrappers [" in str(refused.value)
        assert f"model {plain.id}, with env.wrappers []" in str(refused.value)
        assert str(doubled.id) in str(refused.value.hint)


def test_a_run_at_work_is_meant_by_its_best_checkpoint_so_far(shop: Shop) -> None:
    model = shop.a_model("r-1", state=State.RUNNING, judged=False)
    shop.registry.forget_run("r-1")
    directory = RunDir.of(shop.get("r-1"))
    name = Path(model.model_path).name
    directory.write_report(name, a_report(1.0, env_id=model.env_id, checkpoint=name))
    found = source(shop.models(), shop, "r-1")
    assert (found.path, found.kind) == (directory.checkpoints / name, "checkpoint")
    assert (found.model, found.run) == (None, shop.get("r-1"))

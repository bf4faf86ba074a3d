"""What a spec says of its algorithm: defaults, pairings that cannot work, and options unread."""

import json
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from rl_orch.api.routes.experiments import spec_of
from rl_orch.api.schemas import Experiment
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.errors import SpecInvalid
from rl_orch.orchestrator import connect, to_spec
from rl_orch.rl.train import Training
from rl_orch.spec import tuned
from rl_orch.spec.algorithms import BUILT_IN, NEAREST
from rl_orch.spec.aliases import FACTORS
from rl_orch.spec.checks import ALWAYS_READ, SELECTIVE, overrun, unread, value_at
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table
from rl_orch.spec.reader import read_spec
from rl_orch.spec.resolve import resolve
from rl_orch.spec.upgrade import upgraded
from tests.learning.recorder import MemoryOutlet

every_algorithm = pytest.mark.parametrize("algo", [*BUILT_IN])
G = TypeVar("G", bound=BaseModel)


def a_spec(algo: str = "ppo", options: Mapping[str, Any] | None = None) -> Spec:
    return resolve({"env.id": "Any-v0", "agent.algorithm": algo, **(options or {})})


def refused(algo: str, options: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """The sentence and the hint of every problem, by path."""
    with pytest.raises(SpecInvalid) as caught:
        a_spec(algo, options)
    return {p.path: (p.message, p.hint) for p in caught.value.problems}


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@every_algorithm
def test_what_is_not_given_is_the_algorithms_own_default(algo: str) -> None:
    spec, own = a_spec(algo), BUILT_IN[algo].defaults
    for path, option in table().items():
        if option.required or path in (*FACTORS, "agent.algorithm"):
            continue
        assert plain(value_at(spec, path)) == own.get(path, option.default), path


@every_algorithm
def test_every_default_of_an_algorithm_differs_from_that_of_all(algo: str) -> None:
    for path, value in BUILT_IN[algo].defaults.items():
        assert path in table()
        if path != "train.report_every":
            assert plain(value) != table()[path].default or algo == "qrdqn", path


@every_algorithm
def test_what_is_given_wins_over_the_algorithms_own_default_wherever_it_is_given(algo: str) -> None:
    document = {"env.id": "x", "train.lr": 0.25}
    assert a_spec(algo, {"train.lr": 0.25}).train.lr == 0.25
    name = {"agent.algorithm": algo}
    assert resolve(document, flags=name).train.lr == 0.25
    for lr in (
        resolve(document | name, variables={"RL_TRAIN_LR": "0.5"}).train.lr,
        resolve(document | name, flags={"train.lr": "0.5"}).train.lr,
        resolve(document | name, overrides=["train.lr=0.5"]).train.lr,
    ):
        assert lr == 0.5


@every_algorithm
def test_an_option_that_is_put_back_takes_the_algorithms_own_default(algo: str) -> None:
    document = {"env.id": "x", "agent.algorithm": algo, "train": {"lr": 0.25, "tau": 0.5}}
    assert resolve(document, overrides=["~train"]) == a_spec_of_x(algo)
    assert (
        resolve(document, overrides=["~train.lr"]).train == a_spec(algo, {"train.tau": 0.5}).train
    )


def a_spec_of_x(algo: str) -> Spec:
    return resolve({"env.id": "x", "agent.algorithm": algo})


def test_an_algorithm_that_is_put_back_takes_its_defaults_along() -> None:
    document = {"env.id": "x", "agent.algorithm": "sac"}
    assert resolve(document, overrides=["~agent.algorithm"]) == resolve({"env.id": "x"})
    assert resolve(document, flags={"agent.algorithm": "td3"}) == a_spec_of_x("td3")


@pytest.mark.parametrize("written", ["SAC", " sac ", "Sac"])
def test_defaults_are_found_however_the_algorithm_is_written(written: str) -> None:
    assert a_spec(written) == a_spec("sac")


@pytest.mark.parametrize("written", ["MaskablePPO", "maskable_ppo", "maskable-ppo", "MASKABLEPPO"])
def test_maskable_ppo_is_ppo_with_masks(written: str) -> None:
    assert a_spec(written) == a_spec("ppo", {"agent.action_masks": True})


@pytest.mark.parametrize("written", ["RecurrentPPO", "recurrent_ppo", "ppo_lstm", "PPO-LSTM"])
def test_recurrent_ppo_is_ppo_with_an_lstm_or_what_else_is_asked_for(written: str) -> None:
    assert a_spec(written) == a_spec("ppo", {"feature.encoder": "lstm"})
    gru = {"feature.encoder": "gru"}
    assert a_spec(written, gru) == a_spec("ppo", gru)
    flags = {"agent.algorithm": written}
    document = {"env.id": "x", "agent.algorithm": "sac", "feature.encoder": "mlp"}
    assert resolve(document, flags=flags) == resolve(
        {"env.id": "x", "agent.algorithm": "ppo", "feature.encoder": "lstm"}
    )


def test_hindsight_is_no_algorithm_and_the_answer_says_how_it_is_written() -> None:
    (message, hint) = refused("HER", {})["agent.algorithm"]
    assert "one of ppo, a2c" in message
    assert hint is not None
    assert "buffer.her_strategy=future" in hint


@pytest.mark.parametrize(
    ("written", "here"),
    [
        ("MaskabelPPO", "maskableppo"),
        ("recurent_ppo", "recurrentppo"),
        ("dpn", "dqn"),
        ("DDPG", "td3"),
        ("TRPO", "ppo"),
        ("ars", "ppo"),
        ("Rainbow", "buffer.n_step"),
        ("raimbow", "buffer.n_step"),
        ("double-dqn", "train.double_q"),
        ("REINFORCE", "a2c"),
        ("muzero", "MaskablePPO"),
    ],
)
def test_an_algorithm_that_is_not_here_is_answered_with_the_nearest(
    written: str, here: str
) -> None:
    (_, hint) = refused(written, {})["agent.algorithm"]
    assert here in str(hint)


def test_what_the_nearest_algorithm_is_said_to_have_is_there() -> None:
    words = set(re.findall(r"[a-z_0-9]+\.[a-z_.0-9]*[a-z_0-9]", " ".join(NEAREST.values())))
    assert words <= set(table())


def test_null_is_a_value_and_not_a_default() -> None:
    assert a_spec("dqn").train.max_grad_norm == 10.0
    assert a_spec("dqn", {"train.max_grad_norm": None}).train.max_grad_norm is None
    assert a_spec("sac").train.max_grad_norm is None
    assert a_spec("sac", {"train.max_grad_norm": 0.5}).train.max_grad_norm == 0.5


@every_algorithm
def test_a_spec_that_is_written_down_resolves_to_itself(algo: str) -> None:
    spec = a_spec(algo)
    assert resolve(spec.model_dump(mode="json")) == spec
    assert unread(spec) == []


@every_algorithm
def test_an_expectation_of_off_policy_learning_is_held_against_the_algorithm(algo: str) -> None:
    actual = BUILT_IN[algo].off_policy
    assert a_spec(algo, {"train.off_policy": actual}).train.off_policy is actual
    kind = "off-policy" if actual else "on-policy"
    expected = str(not actual).lower()
    assert refused(algo, {"train.off_policy": not actual}) == {
        "train.off_policy": (
            f"train.off_policy is {expected}, but agent.algorithm '{algo}' is {kind}",
            f"Set it to {str(actual).lower()}, or leave it out.",
        )
    }


@pytest.mark.parametrize("encoder", ["gru", "lstm"])
@every_algorithm
def test_only_some_algorithms_train_a_policy_with_a_memory(algo: str, encoder: str) -> None:
    options = {"feature.encoder": encoder}
    if algo in ("ppo", "a2c"):
        assert a_spec(algo, options).feature.encoder == encoder
        return
    assert refused(algo, options) == {
        "feature.encoder": (
            f"feature.encoder is '{encoder}', but {algo} cannot train a policy with a memory",
            f"Use ppo or a2c; or obs.stack_frames, which {algo} can learn from.",
        )
    }


@every_algorithm
def test_only_some_algorithms_heed_masks(algo: str) -> None:
    options = {"agent.action_masks": True}
    if algo in ("ppo", "a2c", "dqn", "qrdqn"):
        assert a_spec(algo, options).agent.action_masks
        return
    assert refused(algo, options) == {
        "agent.action_masks": (
            f"agent.action_masks is true, but {algo} does not heed action masks",
            "Use ppo, a2c, dqn or qrdqn, or leave it out.",
        )
    }


@every_algorithm
def test_only_some_algorithms_learn_a_temperature(algo: str) -> None:
    if algo in ("sac", "tqc", "crossq"):
        assert a_spec(algo).train.ent_coef == "auto"
        assert a_spec(algo, {"train.ent_coef": "0.2"}).train.ent_coef == 0.2
        return
    assert refused(algo, {"train.ent_coef": "auto"}) == {
        "train.ent_coef": (
            f"train.ent_coef is 'auto', but {algo} does not learn it; sac, tqc or crossq does",
            "Set a number ≥ 0.",
        )
    }


def test_a_weight_of_the_entropy_is_not_negative() -> None:
    for algo in ("ppo", "sac"):
        (message, _) = refused(algo, {"train.ent_coef": -0.5})["train.ent_coef"]
        assert message == "train.ent_coef is -0.5; must be ≥ 0, or auto"
    assert (
        "a finite number ≥ 0, or auto"
        in refused("ppo", {"train.ent_coef": "much"})["train.ent_coef"][0]
    )


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_sequences_must_fit_the_rollout_and_the_minibatch(algo: str) -> None:
    options = {"feature.encoder": "gru", "rollout.steps": 24, "train.batch_size": 16}
    longest = 8 if algo == "ppo" else 24
    assert a_spec(algo, options).sequence_length == longest
    for length in (1, 4, longest):
        made = a_spec(algo, options | {"train.sequence_length": length})
        assert made.sequence_length == length
    what = "rollout.steps = 24" + (" and train.batch_size = 16" if algo == "ppo" else "")
    assert refused(algo, options | {"train.sequence_length": 5}) == {
        "train.sequence_length": (
            f"train.sequence_length is 5; must divide {what}",
            f"Leave it out for the longest that does, {longest}.",
        )
    }
    plain_options = {"train.sequence_length": 5, "rollout.steps": 24, "train.batch_size": 16}
    assert a_spec(algo, plain_options).train.sequence_length == 5


@pytest.mark.parametrize("algo", ["dqn", "qrdqn", "sac", "td3", "tqc", "crossq"])
def test_what_learns_from_a_buffer_must_have_something_to_learn_from(algo: str) -> None:
    found = refused(
        algo,
        {
            "train.gradient_steps": 0,
            "train.learning_starts": 50,
            "train.total_timesteps": 50,
            "train.batch_size": 64,
            "buffer.size": 64,
            "buffer.n_step": 100,
        },
    )
    assert found == {
        "train.gradient_steps": (
            "train.gradient_steps is 0, so that nothing would be learned",
            "Set a number of updates, or -1 for one for each transition.",
        ),
        "train.batch_size": ("train.batch_size is 64; must be below buffer.size = 64", None),
        "buffer.size": (
            "buffer.size is 64; must be at least 202, twice what 1 copies need for windows of "
            "101 rows (buffer.n_step and obs.stack_frames)",
            None,
        ),
        "train.learning_starts": (
            "train.learning_starts is 50; must be below train.total_timesteps = 50, "
            "or nothing would be learned",
            "For a short try, set train.learning_starts=5.",
        ),
    }
    fits = {"train.learning_starts": 49, "train.total_timesteps": 50, "train.gradient_steps": -1}
    assert a_spec(algo, fits | {"train.batch_size": 63, "buffer.size": 64}).buffer.size == 64


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_what_learns_from_rollouts_has_no_use_for_a_buffer_and_no_quarrel_with_it(
    algo: str,
) -> None:
    spec = a_spec(algo, {"train.learning_starts": 10**6, "train.gradient_steps": 0})
    assert len(unread(spec)) == 2


def test_clip_bounds_of_rewards_must_be_in_order() -> None:
    (message, _) = refused("ppo", {"train.clip_reward": [1, -1]})["train.clip_reward"]
    assert message == "train.clip_reward is [1.0, -1.0]; must be [low, high] with low below high"
    assert a_spec("ppo", {"train.clip_reward": 1}).train.clip_reward == (-1.0, 1.0)


def test_an_algorithm_or_an_encoder_that_is_not_there_is_answered_with_those_that_are() -> None:
    (message, _) = refused("dpn", {})["agent.algorithm"]
    assert (
        "one of ppo, a2c, dqn, qrdqn, sac, td3, tqc, crossq, or the name of an installed" in message
    )
    (message, _) = refused("ppo", {"feature.encoder": "resnet"})["feature.encoder"]
    assert "one of auto, mlp, cnn, impala, transformer, gru, lstm, or the name of" in message


@pytest.mark.parametrize(
    ("algo", "path", "value", "sentence"),
    [
        ("ppo", "train.tau", 0.5, "0.5, but ppo does not read it; dqn, qrdqn, sac, td3, tqc would"),
        (
            "ppo",
            "buffer.size",
            500,
            "500, but ppo does not read it; dqn, qrdqn, sac, td3, tqc, crossq would",
        ),
        ("dqn", "train.clip_range", 0.1, "0.1, but dqn does not read it; ppo would"),
        ("sac", "train.double_q", True, "true, but sac does not read it; dqn, qrdqn would"),
        ("td3", "train.use_sde", True, "true, but td3 does not read it; sac, tqc, crossq would"),
        ("a2c", "train.update_epochs", 3, "3, but a2c does not read it; ppo would"),
        ("dqn", "agent.network.shared", True, "true, but dqn does not read it; ppo, a2c would"),
    ],
)
def test_an_option_that_the_algorithm_does_not_read_is_pointed_out(
    algo: str, path: str, value: Any, sentence: str
) -> None:
    (warning,) = unread(a_spec(algo, {path: value}))
    assert (warning.path, warning.message) == (path, f"{path} is {sentence}")


def test_an_external_program_may_read_anything() -> None:
    program = {"runner": "external", "runner.command": ["train"], "train.tau": 0.5}
    assert unread(a_spec("ppo", program)) == []


def noting(group: G, prefix: str, read: set[str]) -> G:
    """The group, of which every option that is read is noted by its path."""
    kind = type(group)

    class Noting(kind):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            if name in kind.model_fields:
                read.add(f"{prefix}.{name}")
            return super().__getattribute__(name)

    made: G = Noting.model_construct(**dict(group))
    return made


def watched(spec: Spec, read: set[str]) -> Spec:
    network = noting(spec.agent.network, "agent.network", read)
    return spec.model_copy(
        update={
            "agent": spec.agent.model_copy(update={"network": network}),
            "train": noting(spec.train, "train", read),
            "buffer": noting(spec.buffer, "buffer", read),
        }
    )


BEFORE = "d4e661a42f6a6b1ca4a2c812ebf705efeda2d6a8d206e0da4d4effda62b5d528"
"""The config hash that a plain CartPole-v1 had when PPO was the only algorithm."""

OUTSIDE = {"buffer.memory_share", "agent.network.ortho_init", "buffer.her_k"}
"""Read where the buffer's memory is made, by the worker; where images are encoded; and where there
are goals."""


@every_algorithm
def test_an_algorithm_reads_what_it_says_and_nothing_else(algo: str) -> None:
    traits, read = BUILT_IN[algo], set[str]()
    options: dict[str, Any] = {
        "env.id": "Pendulum-v1",
        "env.num_envs": 2,
        "rollout.steps": 8,
        "train.total_timesteps": 32,
        "train.batch_size": 8,
        "train.learning_starts": 8,
        "train.clip_range_vf": 0.2,
        "train.normalize_reward": True,
        "buffer.prioritized": True,
        "train.double_q": True,
        "train.target_update_interval": 8,
        "agent.network.hidden_sizes": [8],
        "eval.episodes": 1,
        "env.max_episode_steps": 5,
    }
    if "Box" not in traits.actions:
        options |= {"env.id": "CartPole-v1"}
    if traits.recurrent:
        options |= {"feature.encoder": "gru", "feature.embed_dim": 8}
    for use_sde in (False, True):
        chosen = options | {"agent.algorithm": algo, "train.use_sde": use_sde}
        spec = watched(resolve(chosen), read)
        with closing(Training(spec, MemoryOutlet())) as training:
            training.run()
    assert traits.reads is not None
    known = traits.reads | ALWAYS_READ
    assert read - known == set()
    assert traits.reads - read - OUTSIDE == set()
    assert all(path.startswith(SELECTIVE) and path in table() for path in traits.reads)


@pytest.mark.parametrize("path", sorted(tuned.CONFIGS.glob("*-*.yaml")), ids=lambda path: path.stem)
def test_the_name_of_a_tuned_spec_is_its_algorithm_and_its_environment(path: Path) -> None:
    spec = resolve(read_spec(path))
    assert tuned.find(spec) == path
    assert unread(spec) == []


@pytest.mark.parametrize("env_id", ["Nowhere-v0", "../../secrets", "a b", "", "ppo/../x"])
def test_an_environment_without_a_tuned_spec_has_none(env_id: str) -> None:
    spec = a_spec().model_copy(update={"env": a_spec().env.model_copy(update={"id": env_id})})
    assert tuned.find(spec) is None


def test_an_environment_of_ones_own_has_no_tuned_spec_whatever_its_name() -> None:
    assert tuned.find(resolve({"env.id": "mine:CartPole-v1"})) is None
    assert tuned.find(resolve({"env.id": "gym_anytrading:forex-v0"})) is not None


def test_only_what_is_learned_with_is_taken_from_a_tuned_spec() -> None:
    path = tuned.CONFIGS / "ppo-CartPole-v1.yaml"
    taken = tuned.hyperparameters(path)
    assert {*taken} <= {*tuned.LEARNING}
    assert {"id", "seed"}.isdisjoint(taken["env"])
    assert taken["train"] == read_spec(path)["train"]


def spec_from(file: Path | None, overrides: list[str] | None, flags: dict[str, str]) -> Spec:
    """The spec that is typed."""
    given: Any = {f"flag_{path.replace('.', '__')}": text for path, text in flags.items()}
    return SpecArguments(overrides, file, **given).spec()


def test_without_a_file_tuned_hyperparameters_stand_in_for_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"env.id": "CartPole-v1", "env.seed": "7"}
    spec = spec_from(None, None, given)
    told = capsys.readouterr().err
    tuned_spec = resolve(read_spec(tuned.CONFIGS / "ppo-CartPole-v1.yaml"))
    for group in ("agent", "train", "rollout", "buffer", "obs", "feature"):
        assert getattr(spec, group) == getattr(tuned_spec, group), group
    assert (spec.env.num_envs, spec.env.seed) == (tuned_spec.env.num_envs, 7)
    assert (spec.name, spec.gates.min_return, spec.eval) == (
        None,
        None,
        Spec.model_fields["eval"].default,
    )
    assert "hyperparameters tuned for CartPole-v1 (ppo-CartPole-v1.yaml)" in told


def test_what_is_typed_beats_a_tuned_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_TRAIN_GAMMA", "0.5")
    spec = spec_from(None, ["train.batch_size=256"], {"env.id": "CartPole-v1", "train.lr": "0.125"})
    assert (spec.train.gamma, spec.train.batch_size, spec.train.lr) == (0.5, 256, 0.125)
    tuned_spec = resolve(read_spec(tuned.CONFIGS / "ppo-CartPole-v1.yaml"))
    assert spec.train.gae_lambda == tuned_spec.train.gae_lambda != 0.95


def test_the_algorithm_that_is_typed_finds_its_own_tuned_spec() -> None:
    spec = spec_from(None, ["agent.algorithm=dqn"], {"env.id": "CartPole-v1"})
    assert (spec.agent.algorithm, spec.buffer.size) == ("dqn", 100_000)
    other = spec_from(None, None, {"env.id": "MountainCar-v0", "agent.algorithm": "qrdqn"})
    plain = {"env.id": "MountainCar-v0", "agent.algorithm": "qrdqn", "tuned": "none"}
    assert other == resolve(plain)


def test_a_file_flags_python_and_http_ask_for_the_same_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"env": {"id": "CartPole-v1"}, "train": {"gamma": 0.97}}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(document))
    typed = spec_from(None, None, {"env.id": "CartPole-v1", "train.gamma": "0.97"})
    said = capsys.readouterr().err
    from_file = spec_from(path, None, {})
    assert capsys.readouterr().err == said
    assert len(said.splitlines()) == 1
    asked = Experiment(spec=document)
    submitted = spec_of(asked, connect(tmp_path))
    assert typed == from_file == to_spec(path) == to_spec(document) == submitted
    assert (typed.tuned, typed.train.lr) == ("ppo-CartPole-v1", 0.0025)


@pytest.mark.parametrize("off", [False, "false", "off", "none", "None"])
def test_tuned_hyperparameters_are_left_out_where_they_are_turned_off(off: Any) -> None:
    spec = to_spec({"env.id": "CartPole-v1", "tuned": off})
    assert spec == resolve({"env.id": "CartPole-v1", "tuned": "none"})


def test_tuned_hyperparameters_of_another_environment_can_be_named() -> None:
    spec = to_spec({"env.id": "Nowhere-v0", "tuned": "ppo-CartPole-v1"})
    assert (spec.tuned, spec.train.lr) == ("ppo-CartPole-v1", 0.0025)
    with pytest.raises(SpecInvalid) as caught:
        to_spec({"env.id": "Nowhere-v0", "tuned": "ppo-CartPol"})
    assert [(p.path, p.hint) for p in caught.value.problems] == [
        ("tuned", "Did you mean ppo-CartPole-v1?")
    ]


def test_tuned_hyperparameters_that_do_not_fit_are_left_and_said_to_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = spec_from(None, ["rollout.steps=8"], {"env.id": "CartPole-v1"})
    assert short == resolve({"env.id": "CartPole-v1", "rollout.steps": 8, "tuned": "none"})
    assert "not tuned: ppo-CartPole-v1.yaml" in capsys.readouterr().err
    with pytest.raises(SpecInvalid):
        spec_from(None, ["rollout.steps=8", "tuned=ppo-CartPole-v1"], {"env.id": "CartPole-v1"})


def test_a_resolved_spec_stays_what_it_is(tmp_path: Path) -> None:
    spec = to_spec({"env.id": "CartPole-v1"})
    assert to_spec(spec) == spec
    plain = to_spec({"env.id": "CartPole-v1", "tuned": False})
    assert to_spec(plain) == plain
    earlier = {k: v for k, v in plain.model_dump(mode="json").items() if k != "tuned"}
    assert to_spec(earlier) == plain
    assert Spec.model_validate(earlier).config_hash == plain.config_hash


def test_an_external_program_is_not_given_hyperparameters_that_were_tuned_for_ours() -> None:
    program = {"env.id": "CartPole-v1", "runner.name": "external", "runner.command": "train"}
    assert spec_from(None, None, program) == resolve(flags=program | {"tuned": "none"})


def test_options_that_are_not_read_are_warned_of_where_a_spec_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec_from(None, None, {"env.id": "CartPole-v1", "train.tau": "0.5"})
    told = capsys.readouterr().err
    assert "warning: train.tau is 0.5, but ppo does not read it" in " ".join(told.split())


@pytest.mark.parametrize(
    ("budget", "trained"),
    [
        (256, 2048),
        (2000, 2048),
        (2048, None),
        (2049, 4096),
        (3723, 4096),
        (3724, None),
        (10**5, None),
    ],
)
def test_rollouts_that_take_far_more_than_the_budget_are_pointed_out(
    budget: int, trained: int | None
) -> None:
    sizes = {"env.num_envs": 16, "rollout.steps": 128, "train.batch_size": 128}
    warnings = overrun(a_spec("ppo", sizes | {"train.total_timesteps": budget}))
    sentences = [str(each) for each in warnings]
    assert len(sentences) == (trained is not None)
    assert all("16 × 128 = 2,048" in said and f"{trained:,} will" in said for said in sentences)


def test_an_overrun_is_warned_of_where_a_spec_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    spec_from(None, None, {"env.id": "CartPole-v1", "train.total_timesteps": "256"})
    assert "rollouts are whole" in " ".join(capsys.readouterr().err.split())
    program = {"runner": "external", "runner.command": ["train"], "train.total_timesteps": 1}
    assert overrun(a_spec("ppo", program)) == []


def test_a_spec_that_an_earlier_release_wrote_keeps_its_hash() -> None:
    """Its encoder and policy are named as that release had them, and the hash is what it gave."""
    fresh = resolve({"env.id": "CartPole-v1"})
    old = fresh.model_dump(mode="json")
    old["feature"] = {"encoder": "mlp", "embed_dim": None}
    old["agent"]["policy_type"] = "MlpPolicy"
    for group, name in (("agent", "options"), ("agent", "action_masks"), ("train", "tau")):
        del old[group][name]
    del old["buffer"]
    read = Spec.model_validate(upgraded(old))
    assert (read.feature.encoder, read.agent.policy_type) == ("auto", None)
    assert read.config_hash == fresh.config_hash == BEFORE
    chosen = fresh.model_dump(mode="json") | {"feature": {"encoder": "mlp", "options": {}}}
    assert Spec.model_validate(upgraded(chosen)).feature.encoder == "mlp"

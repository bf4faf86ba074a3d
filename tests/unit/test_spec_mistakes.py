"""Sentences about mistakes: they show what was typed, and point to the nearest name."""

from typing import Any

import pytest

from rl_orch.errors import SpecInvalid
from rl_orch.spec.mistakes import show, stray_variables
from rl_orch.spec.options import short_names, table
from rl_orch.spec.resolve import resolve


def found(document: dict[str, Any] | None = None, **sources: Any) -> list[tuple[str, str]]:
    """The path and the sentence of every problem, hints included."""
    base = {"env": {"id": "CartPole-v1"}}
    with pytest.raises(SpecInvalid) as caught:
        resolve(base if document is None else document, **sources)
    return [(p.path, f"{p.message} {p.hint or ''}".strip()) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("train.learnig_rate", "train.learning_rate"),
        ("train.batchsize", "train.batch_size"),
        ("train.batchSzie", "train.batch_size"),
        ("train.seed", "env.seed"),
        ("train.steps", "rollout.steps"),
        ("trian.lr", "train.lr"),
        ("evn.id", "env.id"),
        ("agent.hidden_sizes", "agent.network.hidden_sizes"),
        ("policy.network.hiden_sizes", "agent.network.hidden_sizes"),
        ("learnig_rate", "train.learning_rate"),
        ("lerning_rate", "train.learning_rate"),
        ("ent_coeff", "train.ent_coef"),
        ("polcy", "policy"),
        ("evaluation.episodes", "eval.episodes"),
        ("gate.min_return", "gates.min_return"),
        ("registry.min_rewrd", "registry.min_reward"),
        ("total_timestep", "train.total_timesteps"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    problems = found({"env.id": "CartPole-v1", typed: 1})
    assert [path for path, _ in problems] == [typed]
    assert problems[0][1].endswith(f"Did you mean {meant}?")


def test_an_unknown_key_that_resembles_nothing_names_what_there_is() -> None:
    [(path, said)] = found({"env": {"id": "x", "qqq": 1}})
    assert (path, said) == (
        "env.qqq",
        "env.qqq is unknown; env has: id, num_envs, seed, backend, max_episode_steps, kwargs, "
        "wrappers, info_metrics",
    )


@pytest.mark.parametrize("typed", ["evn", "environment", "Env_", "enviroment"])
def test_a_group_that_looks_like_env_is_the_only_thing_wrong(typed: str) -> None:
    problems = found({typed: {"id": "CartPole-v1"}})
    assert [path for path, _ in problems] == [typed]


def test_a_mistake_inside_env_does_not_hide_that_the_id_is_missing() -> None:
    problems = found({"env": {"nvm_envs": 3}})
    assert [path for path, _ in problems] == ["env.nvm_envs", "env.id"]


def test_a_missing_environment_teaches_how_to_give_one() -> None:
    [(_, said)] = found({})
    for way in ("`env: {id: CartPole-v1}`", "--env CartPole-v1", "RL_ENV_ID"):
        assert way in said


def test_a_wrong_value_is_shown_as_it_was_typed_and_where() -> None:
    bad = {"variables": {"RL_TRAIN_LEARNING_RATE": "fast"}}
    assert 'train.lr is "fast" (from RL_TRAIN_LEARNING_RATE); must be' in found(**bad)[0][1]
    assert "(from --lr)" in found(flags={"train.lr": "fast"})[0][1]
    assert "(from train.learningRate)" in found({"env.id": "x", "train.learningRate": "x"})[0][1]
    assert 'agent.algorithm is "PPPO"; ' in found({"env.id": "x", "agent.algorithm": "PPPO"})[0][1]
    assert "is 1e400; " in found({"env.id": "x", "train.total_timesteps": "1e400"})[0][1]
    assert "(from" not in found(overrides=["train.lr=x"])[0][1]


def test_every_problem_is_found_at_once() -> None:
    document = {"env": {"id": "x", "num_envs": 0}, "trian": {}, "train": {"lr": -1, "gamma": 2}}
    paths = [path for path, _ in found(document, overrides=["nothing", "eval.x=1"])]
    assert paths == ["trian", "nothing", "eval.x", "env.num_envs", "train.lr", "train.gamma"]


def test_an_option_given_twice_by_alias_names_both() -> None:
    [(_, said)] = found({"env": {"id": "x", "envId": "y"}})
    assert 'env.id is given twice, as "x" by env.id and as "y" by env.envId' in said
    [(_, said)] = found({"env.id": "x", "agent": {"algo": "ppo"}, "policy": {"algo": "sac"}})
    assert "by agent.algo and" in said
    variables = {"RL_ENV_NUM_ENVS": "1", "RL_ENV_N_ENVS": "2"}
    assert "as 1 by RL_ENV_NUM_ENVS and as 2 by RL_ENV_N_ENVS" in found(variables=variables)[0][1]


def test_the_same_value_given_twice_is_no_problem() -> None:
    assert resolve({"env": {"id": "x", "envId": "x"}}).env.id == "x"


def test_a_value_in_place_of_a_group_names_what_the_group_has() -> None:
    [(path, said)] = found({"env.id": "x", "rollout": 5})
    assert path == "rollout"
    assert said == "rollout is 5; must be a group with any of: steps, overlap, collector"
    assert resolve({"env": {"id": "x"}, "train": None}).train.lr == 3e-4


def test_a_module_that_is_switched_off_is_refused() -> None:
    [(path, said)] = found({"rl": {"enable": False, "env": {"id": "x"}}})
    assert (path, said) == ("rl.enable", "rl.enable is false; must be true for the spec to be used")


@pytest.mark.parametrize("text", ["[64,", "64,,64", "{", "[1]]", "[" * 100_000])
def test_a_list_in_a_variable_must_be_json(text: str) -> None:
    [(path, said)] = found(variables={"RL_AGENT_NET_ARCH": text})
    assert path == "agent.network.hidden_sizes"
    assert "(from RL_AGENT_NET_ARCH); must be JSON: a list of up to 32 whole numbers" in said


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.lr", "is not understood"),
        ("=3", "names no option"),
        ("train.lr=1,2", "names several values; a run takes one"),
        ("train.lr=range(1,5)", "names several values; a run takes one"),
        ("train.lr=[1", "is not understood"),
        ("trian.lr=1", "Did you mean train.lr?"),
    ],
)
def test_a_bad_override_is_named_whole(override: str, said: str) -> None:
    [(path, sentence)] = found(overrides=[override])
    assert path in override
    assert said in sentence


@pytest.mark.parametrize("word", ["CartPole-v1", "grid:Warehouse-v0", "CartPole"])
def test_an_environment_that_stands_alone_is_told_its_flag(word: str) -> None:
    [(path, said)] = found(overrides=[word])
    assert path == word
    assert f"--env {word}" in said


def test_a_schedule_that_is_a_function_is_told_its_option() -> None:
    [(path, said)] = found({"env": "x", "lr": lambda left: left * 1e-3})
    assert path == "train.lr"
    assert "lr_schedule" in said


def test_arguments_of_a_normaliser_that_have_no_option_are_told_those_that_have() -> None:
    [(path, said)] = found({"env": "x", "normalize": "dict(norm_obs=True, gamma=0.9)"})
    assert path == "obs.normalize"
    assert "train.normalize_reward" in said


@pytest.mark.parametrize("name", [2024, True, 1.5])
def test_a_name_that_is_no_text_is_told_to_wear_quotes(name: Any) -> None:
    assert found({"env.id": "x", "name": name})[0][1].endswith("Put it in quotes to make it text.")


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "a\x85b", "a\u202eb", "\ud800", "x" * 101])
def test_a_name_is_one_line_of_printable_text(name: str) -> None:
    [(path, said)] = found({"env.id": "x", "name": name})
    assert path == "name"
    assert "must be one line of printable text of 1 to 100 characters" in said


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("RL_TRAIN_LRR", "did you mean RL_TRAIN_LR?"),
        ("RL_TRAIN_LERNING_RATE", "did you mean RL_TRAIN_LEARNING_RATE?"),
        ("RL_TRIAN_LR", "did you mean RL_TRAIN_LR?"),
        ("RL_FEAT_ENCODR", "did you mean RL_FEAT_ENCODER?"),
        ("RL_POLICY_ALG", "did you mean RL_POLICY_ALGO?"),
        ("RL_EVAL_ZZZ", "`rlctl options` lists those in use"),
        ("RL_NUM_ENV", "did you mean RL_NUM_ENVS?"),
        ("RL_LERNING_RATE", "did you mean RL_LEARNING_RATE?"),
        ("RL_GLUE_PORT", "`rlctl options` lists those in use"),
    ],
)
def test_a_variable_that_nothing_reads_is_pointed_out(name: str, advice: str) -> None:
    (warning,) = stray_variables({name: "a secret"})
    assert (warning.path, warning.value) == (name, None)
    assert warning.message == f"{name} is set, but no option reads it; {advice}"


def test_variables_of_ours_and_of_other_programs_are_left_alone() -> None:
    others = ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"]
    others += ["RLCTL_HOME", "URL_TRAIN_LR", "PATH", "RLIMIT"]
    ours = [name for option in table().values() for name in option.variables]
    ours += [f"RL_{word.upper()}" for word in short_names()]
    assert stray_variables(dict.fromkeys([*others, *ours], "1")) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", '"a"'), ("1e400", "1e400"), (None, "null"), (True, "true"), ([1, "x"], '[1, "x"]')],
)
def test_a_value_is_shown_as_one_would_type_it(value: Any, text: str) -> None:
    assert show(value) == text


def test_a_long_value_is_cut() -> None:
    assert len(show("x" * 1000)) == 60
    endless: list[Any] = []
    endless.append(endless)
    assert show(endless) == "a list without end"

"""How values are spelled, what the hash covers, and what options mean together."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from rl_orch.errors import OptionPending, SpecInvalid
from rl_orch.spec.aliases import ALIASES, FACTORS, canonical, snake
from rl_orch.spec.checks import pending, refuse_pending, unread, value_at
from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, groups, table
from rl_orch.spec.resolve import resolve
from rl_orch.stats import share_ci95

NOT_LEARNED = (
    *("name", "seeds", "resources", "schedule", "store", "registry"),
    *("metrics", "traces", "logs", "infer", "tags", "parent", "role", "tuned"),
)
EXPECTATIONS = ("env.seed", "agent.discrete", "agent.policy_type", "train.off_policy")
ELSEWHERE = (
    "env.info_metrics",
    "train.report_every",
    "train.engine",
    "buffer.memory_share",
    "checkpoint.keep_training_state",
    "start.from",
)
PATIENCE = ("runner.silence_s", "runner.stop_grace_s")
PROGRAM = {"runner": "external", "runner.command": ["train"], "runner.policy": ["act"]}
OTHER_VALUES: dict[str, Any] = {
    "name": "another",
    "tuned": "none",
    "agent.network.critic_hidden_sizes": [8],
    "gates.min_success_rate": 0.5,
    "tags": {"team": "vision"},
    "role": "trial",
    "start.digest": "a" * 64,
    "env.id": "Pendulum-v1",
    "env.backend": "async",
    "env.max_episode_steps": 7,
    "env.kwargs": {"gravity": 1},
    "env.wrappers": ["ClipAction"],
    "env.info_metrics": ["x"],
    "obs.clip_range": [-1, 1],
    "feature.options": {"heads": 2},
    "agent.options": {"population": 3},
    "train.batch_size": 32,
    "train.observers": ["one"],
    "train.gradient_steps": 2,
    "train.target_entropy": -3.0,
    "train.report_every": 7,
    "buffer.size": 1000,
    "buffer.n_step": 3,
    "train.off_policy": False,
    "agent.network.hidden_sizes": [3],
    "eval.final_episodes": 50,
    "eval.metrics": ["distance"],
    "gates.min_return": 1,
    "gates.metrics": {"x": ">= 1"},
    "rollout.steps": 512,
    "resources.device": "mps",
    "resources.threads": 2,
    "schedule.after": ["first"],
    "store.trackers": [],
    "runner.name": "elsewhere",
    "runner.command": ["another"],
    "runner.env": {"A": "b"},
    "runner.policy": ["another"],
}
"""Values unlike the default, where one cannot be made from the option alone."""


def spec(**values: Any) -> Spec:
    """A small spec with some options set, `__` for the dots in their paths."""
    return resolve({"env.id": "CartPole-v1", "gates.min_return": 0} | dotted(values))


def dotted(values: dict[str, Any]) -> dict[str, Any]:
    return {path.replace("__", "."): value for path, value in values.items()}


def problems(**values: Any) -> dict[str, str]:
    """What is wrong with a spec, by path."""
    with pytest.raises(SpecInvalid) as caught:
        resolve({"env.id": "CartPole-v1"} | dotted(values))
    return {problem.path: problem.message for problem in caught.value.problems}


def camel(word: str) -> str:
    """camelCase from snake_case."""
    head, *rest = word.split("_")
    return head + "".join(part.capitalize() for part in rest)


def another_value(option: Option) -> Any:
    if option.path in OTHER_VALUES:
        return OTHER_VALUES[option.path]
    if option.switch:
        return not option.default
    if option.choices:
        return option.choices[-1]
    if option.default is None:
        return "text" if option.textual else 5
    return option.default / 2 if option.type.startswith("number") and option.default else 1


@pytest.mark.parametrize("true", [True, 1, "1", "true", "True", "yes", "YES", "on", " on "])
def test_a_switch_is_on_in_all_its_spellings(true: Any) -> None:
    assert spec(eval__deterministic=true, gates__stop_when_solved=true).gates.stop_when_solved


@pytest.mark.parametrize("false", [False, 0, "0", "false", "no", "off", "OFF"])
def test_a_switch_is_off_in_all_its_spellings(false: Any) -> None:
    assert not spec(eval__deterministic=false).eval.deterministic


@pytest.mark.parametrize("other", [2, "maybe", None, 0.5, [True]])
def test_nothing_else_is_a_switch(other: Any) -> None:
    assert "true or false" in problems(eval__deterministic=other)["eval.deterministic"]


@pytest.mark.parametrize("million", [1_000_000, 1e6, "1e6", "1_000_000", "1000000", " 1E6 "])
def test_a_whole_number_may_be_written_with_an_exponent(million: Any) -> None:
    made = spec(train__total_timesteps=million)
    assert made.train.total_timesteps == 1_000_000
    assert type(made.train.total_timesteps) is int


@pytest.mark.parametrize("rate", [3e-4, "3e-4", "0.0003", "3E-4"])
def test_a_number_may_be_written_as_text(rate: Any) -> None:
    assert spec(train__lr=rate).train.lr == 3e-4


@pytest.mark.parametrize("bad", [True, "x", [1], {}, 1.5, "1.5", None, float("nan"), "inf", 2**63])
def test_nothing_else_is_a_whole_number(bad: Any) -> None:
    assert "a whole number in [1, 65536]" in problems(env__num_envs=bad)["env.num_envs"]


@pytest.mark.parametrize("bad", [True, "x", [1], {}, None, float("nan"), float("inf"), "1e400", 0])
def test_nothing_else_is_a_learning_rate(bad: Any) -> None:
    assert "a finite number in (0, 10]" in problems(train__lr=bad)["train.lr"]


def test_every_whole_number_has_bounds_so_that_no_database_overflows() -> None:
    whole = [option for option in table().values() if option.type.startswith("whole number")]
    assert [option.path for option in whole if " in [" not in option.type] == []


@pytest.mark.parametrize("algorithm", ["PPO", "ppo", " Ppo "])
def test_an_algorithm_is_found_in_any_case(algorithm: str) -> None:
    assert spec(agent__algorithm=algorithm).agent.algorithm == "ppo"
    assert spec(policy__algo="QR-DQN").agent.algorithm == "qrdqn"


def test_one_number_clips_to_both_sides() -> None:
    assert spec(obs__clip_range=10).obs.clip_range == (-10, 10)
    assert resolve({"env.id": "x"}, flags={"obs.clip_range": "10"}).obs.clip_range == (-10, 10)


def test_a_switch_stands_for_a_normalisation_strategy() -> None:
    assert spec(obs__normalize=True).obs.normalize == "running"
    assert spec(obs__normalize="off").obs.normalize == "none"


def test_null_is_nothing_in_every_source() -> None:
    for made in (
        spec(train__max_grad_norm=None),
        resolve({"env.id": "x"}, variables={"RL_TRAIN_MAX_GRAD_NORM": "null"}),
        resolve({"env.id": "x"}, flags={"train.max_grad_norm": "None"}),
        resolve({"env.id": "x"}, overrides=["train.max_grad_norm=null"]),
    ):
        assert made.train.max_grad_norm is None


def test_an_empty_variable_counts_as_not_set() -> None:
    assert resolve({"env.id": "x"}, variables={"RL_TRAIN_LR": ""}).train.lr == 3e-4


def test_a_number_typed_for_a_name_is_text() -> None:
    assert resolve({"env.id": "x"}, overrides=["name=1e3"]).name == "1e3"
    assert resolve({"env.id": "x"}, overrides=["name=true"]).name == "true"


def test_the_last_of_several_overrides_counts() -> None:
    assert resolve({"env.id": "x"}, overrides=["train.lr=1", "train.learningRate=2"]).train.lr == 2


def test_an_override_may_set_a_whole_group() -> None:
    made = resolve({"env.id": "x"}, overrides=["agent.network={activation:relu,shared:true}"])
    assert (made.agent.network.activation, made.agent.network.shared) == ("relu", True)


def test_an_option_or_a_group_may_be_put_back_to_its_default() -> None:
    document = {"env": {"id": "x", "num_envs": 3}, "train": {"lr": 1, "gamma": 0.5}}
    made = resolve(document, overrides=["~train", "~env.num_envs"])
    assert made == resolve({"env": {"id": "x"}})
    with pytest.raises(SpecInvalid, match=r"env\.id is missing"):
        resolve(document, overrides=["~env"])
    with pytest.raises(SpecInvalid, match="nothing is unknown"):
        resolve(document, overrides=["~nothing"])


def test_a_variable_of_other_programs_gives_way_to_ours() -> None:
    generic = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://generic"}
    assert resolve({"env.id": "x"}, variables=generic).metrics.endpoint == "http://generic"
    both = generic | {"RL_METRICS_ENDPOINT": "http://ours"}
    assert resolve({"env.id": "x"}, variables=both).metrics.endpoint == "http://ours"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("store.tracking_uri", ("RL_STORE_TRACKING_URI", "--tracking-uri")),
        ("store.experiment_name", ("RL_STORE_EXPERIMENT_NAME", "--experiment-name")),
        ("store.backend", ("RL_STORE_BACKEND", "--backend")),
        ("registry.db_path", ("RL_REGISTRY_DB", "--registry-db")),
        ("gates.min_return", ("RL_REGISTRY_MIN_REWARD", "--min-reward")),
        ("metrics.enable", ("RL_METRICS_ENABLE", "--metrics")),
        ("metrics.endpoint", ("OTEL_EXPORTER_OTLP_ENDPOINT", "--metrics-endpoint")),
        ("traces.sample_rate", ("RL_TRACES_SAMPLE_RATE", "--trace-sample-rate")),
        ("logs.level", ("RL_LOGS_LEVEL", "--log-level")),
        ("feature.encoder", ("RL_FEAT_ENCODER", "--feature-encoder")),
        ("traces.enable", ("OTEL_TRACES_ENABLE", "--traces")),
    ],
)
def test_the_names_of_the_declarative_module_are_kept(path: str, names: tuple[str, str]) -> None:
    assert names[0] in table()[path].variables
    assert names[1] in table()[path].flags


def test_every_name_in_camel_case_comes_back_in_snake_case() -> None:
    names = {part for path in (*table(), *ALIASES) for part in path.split(".")}
    assert [name for name in names if snake(camel(name)) != name] == []
    assert [name for name in names if snake(name) != name] == []


def test_every_spelling_of_a_path_has_one_canonical_path() -> None:
    for typed in ("policy.netArch", "rl.agent.net_arch", "agent.network.hiddenSizes"):
        assert canonical(typed) == "agent.network.hidden_sizes"


def test_epochs_times_steps_per_epoch_is_the_total() -> None:
    product = spec(train__epochs="5e1", train__steps_per_epoch=4096)
    total = spec(train__total_timesteps=204_800)
    assert product == total
    assert product.config_hash == total.config_hash


def test_the_two_factors_may_come_from_two_places() -> None:
    document = {"env.id": "x", "train.epochs": 5, "train.steps_per_epoch": 10}
    assert resolve(document, flags={"train.epochs": "7"}).train.total_timesteps == 70
    assert resolve(document, overrides=["train.stepsPerEpoch=3"]).train.total_timesteps == 15
    half = {"env.id": "x", "train.epochs": 5}
    made = resolve(half, variables={"RL_TRAIN_STEPS_PER_EPOCH": "2"})
    assert made.train.total_timesteps == 10


def test_a_total_from_above_beats_the_factors() -> None:
    document = {"env.id": "x", "train.epochs": 5, "train.steps_per_epoch": 10}
    assert resolve(document, flags={"train.total_timesteps": "9"}).train.total_timesteps == 9
    assert resolve(document, overrides=["~train.total_timesteps"]).train.total_timesteps == 100_000


def test_both_factors_taken_back_leave_the_default() -> None:
    document = {"env.id": "x", "train.epochs": 5, "train.steps_per_epoch": 10}
    made = resolve(document, overrides=["~train.epochs", "train.steps_per_epoch=null"])
    assert made.train.total_timesteps == 100_000
    assert resolve({"env.id": "x", "train.epochs": None}).train.total_timesteps == 100_000


def test_one_factor_alone_is_refused() -> None:
    assert "needs it" in problems(train__epochs=5)["train.steps_per_epoch"]
    assert "needs it" in problems(train__steps_per_epoch=5)["train.epochs"]


def test_factors_that_contradict_the_total_are_refused() -> None:
    found = problems(train__epochs=5, train__steps_per_epoch=3, train__total_timesteps=16)
    assert "as 16 by train.total_timesteps and as 15" in found["train.total_timesteps"]
    agreed = spec(train__epochs=5, train__steps_per_epoch=3, train__total_timesteps="15")
    assert agreed.train.total_timesteps == 15


def test_factors_must_be_counts_with_a_product_in_bounds() -> None:
    found = problems(train__epochs="x", train__steps_per_epoch=0)
    assert set(found) == {"train.epochs", "train.steps_per_epoch"}
    assert (
        "[1, 10^13]"
        in problems(train__epochs=1e10, train__steps_per_epoch=1e10)["train.total_timesteps"]
    )


@pytest.mark.parametrize(
    "option",
    [option for path, option in table().items() if path not in ("spec_version", *FACTORS)],
    ids=lambda option: option.path,
)
def test_the_hash_changes_with_what_changes_the_policy_and_with_nothing_else(
    option: Option,
) -> None:
    alone = option.group != "runner" or option.path == "runner.name"
    given: dict[str, Any] = {} if alone else PROGRAM
    if option.path == "gates.no_regression":
        given = {"gates.margin": 1}
    if option.path == "gates.converged":
        given = {"eval.every": 1000}
    base = spec(**given)
    other = spec(**given | {option.path: another_value(option)})
    assert value_at(other, option.path) != value_at(base, option.path)
    outside = option.path.split(".")[0] in NOT_LEARNED
    outside = outside or option.path in (*EXPECTATIONS, *ELSEWHERE, *PATIENCE)
    assert (other.config_hash == base.config_hash) is outside


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    one = spec(env__kwargs={"a": 1, "b": 2})
    other = spec(env__kwargs={"b": 2, "a": 1})
    assert one.config_hash == other.config_hash


@pytest.mark.parametrize(
    ("document", "digest"),
    [
        ({"env.id": "CartPole-v1"}, "d4e661a42f6a"),
        (
            {"env.id": "Pendulum-v1", "agent.algorithm": "sac", "train.lr": 1e-3},
            "5f93e8268d4f",
        ),
        (
            {
                "env.id": "CartPole-v1",
                "agent.algorithm": "dqn",
                "gates.min_return": 400,
                "eval.every": 1000,
                "train.observers": [],
            },
            "65a7e9b1b4b2",
        ),
    ],
)
def test_the_hash_of_a_spec_without_observers_stays_as_it_was(
    document: dict[str, Any], digest: str
) -> None:
    assert resolve(document).config_hash.startswith(digest)


def test_observers_in_their_order_with_their_arguments_are_in_the_hash() -> None:
    entries: list[Any] = [[], ["m:C"], ["m:C", "m:D"], ["m:D", "m:C"], [{"name": "m:C", "k": 1}]]
    hashes = [spec(train__observers=each).config_hash for each in entries]
    assert len({*hashes}) == len(hashes)
    assert spec(train__observers={"name": "m:C"}).config_hash == hashes[1]


def test_a_resolved_spec_written_down_resolves_to_itself() -> None:
    made = spec(agent__network__hidden_sizes=[3, 4], obs__clip_range=5, env__kwargs={"a": [1.5]})
    assert resolve(made.model_dump(mode="json")) == made
    assert Spec.model_validate_json(made.model_dump_json()) == made


def test_a_spec_is_frozen_in_all_its_groups() -> None:
    made = spec()
    for name in groups():
        group: BaseModel = made if name == "spec" else getattr(made, name)
        field = next(iter(type(group).model_fields))
        with pytest.raises(ValidationError, match="frozen"):
            setattr(group, field, getattr(group, field))
    with pytest.raises(ValidationError, match="frozen"):
        made.agent.network.shared = True  # type: ignore[misc]


def test_an_unknown_key_is_refused_in_every_group() -> None:
    for name in groups():
        path = "nonsense" if name == "spec" else f"{name}.nonsense"
        assert path in problems(**{path: 1})
    with pytest.raises(ValidationError, match="Extra inputs"):
        Spec.model_validate({"env": {"id": "x"}, "nonsense": 1})


def test_a_minibatch_must_divide_the_rollout() -> None:
    assert "8 × 256 = 2048" in problems(train__batch_size=100)["train.batch_size"]
    assert spec(train__batch_size=100, agent__algorithm="dqn").train.batch_size == 100


def test_an_expectation_of_off_policy_learning_is_checked() -> None:
    assert "on-policy" in problems(train__off_policy=True)["train.off_policy"]
    assert (
        "off-policy"
        in problems(train__off_policy=False, agent__algorithm="sac")["train.off_policy"]
    )


def test_patience_without_a_gate_is_refused() -> None:
    found = problems(gates__patience=3, gates__stop_when_solved=True)
    assert set(found) == {"gates.patience", "gates.stop_when_solved"}
    assert spec(gates__patience=3).gates.patience == 3


@pytest.mark.parametrize("rule", ["min_return", "min_episodes", "max_std"])
def test_a_gate_asks_for_ten_final_episodes_at_least(rule: str) -> None:
    found = problems(**{f"gates__{rule}": 1, "eval__final_episodes": 9})
    assert found == {
        "eval.final_episodes": "eval.final_episodes is 9; must be at least 10 where a gate is set, "
        "since fewer episodes say too little of a policy"
    }
    assert spec(eval__final_episodes=10).eval.final_episodes == 10
    ungated = resolve({"env.id": "CartPole-v1", "eval.final_episodes": 1})
    assert ungated.eval.final_episodes == 1


@pytest.mark.parametrize("rule", ["no_regression", "improvement"])
def test_a_comparison_asks_for_ten_final_episodes_too(rule: str) -> None:
    given = {f"gates__{rule}": "production", "gates__margin": 1}
    assert set(problems(**given, eval__final_episodes=9)) == {"eval.final_episodes"}


def test_no_regression_asks_for_the_loss_that_is_acceptable() -> None:
    found = problems(gates__no_regression="production")
    assert "which loss of return is acceptable" in found["gates.margin"]
    given = {"env.id": "CartPole-v1", "gates.no_regression": "production", "gates.margin": 0}
    assert resolve(given).gates.margin == 0.0
    alone = resolve({"env.id": "CartPole-v1", "gates.margin": 5})
    said = "gates.margin is 5.0, but gates.no_regression, which reads it, is not set"
    assert said in [str(each) for each in unread(alone)]


@pytest.mark.parametrize("rule", ["converged", "guardrail_clean"])
def test_what_a_run_says_of_itself_is_no_gate_alone(rule: str) -> None:
    assert "says of itself" in problems(**{f"gates__{rule}": True})[f"gates.{rule}"]
    assert getattr(spec(**{f"gates__{rule}": True}, eval__every=1000).gates, rule)


def test_convergence_asks_for_five_evaluations_in_the_last_third() -> None:
    given = {"gates__min_return": 1, "gates__converged": True, "train__total_timesteps": 15_000}
    assert problems(**given, eval__every=1_500) == {
        "gates.converged": "gates.converged is true, but eval.every = 1500 leaves 4 of the 5 "
        "evaluations that it needs in the last third of train.total_timesteps = 15000"
    }
    assert spec(**given, eval__every=1_000).gates.converged


def test_a_success_rate_that_no_evaluation_could_show_is_refused() -> None:
    (said,) = problems(gates__min_success_rate=0.97).items()
    assert said == (
        "gates.min_success_rate",
        "gates.min_success_rate is 0.97, but eval.final_episodes = 100 can show no more than "
        "0.9638: the lower bound where every episode succeeds",
    )
    assert spec(gates__min_success_rate=0.96).gates.min_success_rate == 0.96
    assert "no number of episodes" in problems(gates__min_success_rate=1)["gates.min_success_rate"]
    path = "gates.metrics.success_rate"
    assert "0.9638" in problems(gates__metrics={"success_rate": ">= 0.99"})[path]
    assert "no number" in problems(gates__metrics={"success_rate": "> 1"})[path]
    assert spec(gates__metrics={"success_rate": "<= 0.99", "x": ">= 99"})


@pytest.mark.parametrize("limit", [0.5, 0.9, 0.99])
def test_the_episodes_that_a_success_rate_needs_are_those_of_its_interval(limit: float) -> None:
    with pytest.raises(SpecInvalid) as refused:
        spec(gates__min_success_rate=limit, eval__final_episodes=2)
    (hint,) = [each.hint or "" for each in refused.value.problems if "success" in each.path]
    needed = int(hint.rpartition(" ")[2].rstrip("."))
    assert share_ci95(needed, needed)[0] >= limit > share_ci95(needed - 1, needed - 1)[0]


def test_success_that_evaluations_in_training_read_is_held_against_their_episodes() -> None:
    given = {"gates__min_success_rate": 0.9, "gates__stop_when_solved": True}
    said = problems(**given)["gates.min_success_rate"]
    assert "eval.episodes = 10 can show no more than 0.6915" in said
    assert spec(**given, eval__episodes=36).gates.stop_when_solved


def test_no_more_episodes_of_training_are_asked_for_than_there_are_steps() -> None:
    given = {"gates__min_episodes": 15_001, "train__total_timesteps": 15_000}
    said = problems(**given)["gates.min_episodes"]
    assert "must be at most train.total_timesteps = 15000" in said
    assert spec(**given | {"gates__min_episodes": 15_000}).gates.min_episodes == 15_000


def test_rules_that_training_cannot_be_held_against_give_patience_nothing_to_do() -> None:
    found = problems(gates__improvement="production", gates__patience=3)
    assert "could pass or fail during training" in found["gates.patience"]


@pytest.mark.parametrize(
    "bad", ["", "12", "a b", "prod@CartPole-v1", "-x", "x" * 64 + "y", 5, "Production", "best"]
)
def test_an_alias_is_a_name(bad: Any) -> None:
    assert set(problems(gates__improvement=bad)) == {"gates.improvement"}


def test_an_external_run_needs_a_program_and_a_policy_to_judge() -> None:
    found = problems(runner="external", gates__min_return=1)
    assert set(found) == {"runner.command", "runner.policy"}
    assert "reports about itself" in found["runner.policy"]
    assert spec(**PROGRAM).runner.policy == ("act",)


@pytest.mark.parametrize(("name", "value"), [("max_bundle_mb", 5.0), ("export_parity", True)])
def test_no_bundle_is_asked_of_an_external_program(name: str, value: Any) -> None:
    found = problems(**PROGRAM, **{f"gates.{name}": value})
    assert "an external program's policy has none" in found[f"gates.{name}"]


@pytest.mark.parametrize("name", ["command", "policy", "tensorboard"])
def test_what_only_external_runs_have_is_refused_elsewhere(name: str) -> None:
    found = problems(**{f"runner.{name}": "x"})
    assert "but runner.name is 'local'" in found[f"runner.{name}"]


@pytest.mark.parametrize("bad", [1, True, [1], ["python", ["x"]], {"a": 1}, None, [None]])
def test_a_program_is_a_list_of_words(bad: Any) -> None:
    assert "a list of words" in problems(runner="external", runner__command=bad)["runner.command"]


def test_numbers_among_words_are_told_to_be_quoted() -> None:
    with pytest.raises(SpecInvalid) as caught:
        resolve({"env.id": "x", "runner": "external", "runner.command": ["train", "--lr", 0.1]})
    assert caught.value.hint == "Put 0.1 in quotes to make it text."


@pytest.mark.parametrize("bad", [{"1A": "x"}, {"A-B": "x"}, {"A": 1}, {"A": "\0"}, {"": "x"}, [1]])
def test_variables_for_a_program_have_names_and_text(bad: Any) -> None:
    found = problems(runner="external", runner__command="x", runner__env=bad)
    assert "a map from names of variables to text" in found["runner.env"]


def test_types_of_lists_and_maps_say_what_is_in_them() -> None:
    types = {path: option.type for path, option in table().items()}
    assert types["agent.network.hidden_sizes"] == "list of whole numbers"
    assert types["runner.command"] == types["schedule.after"] == "list of text"
    assert types["runner.env"] == "map of text"
    assert types["seeds"] == "whole number in [1, 1000] or list of whole numbers or null"


def test_cores_and_gpus_follow_from_threads_and_device_unless_they_are_given() -> None:
    assert (spec().cpus, spec().gpus) == (1, 0)
    assert spec(resources__threads=4).cpus == 4
    assert spec(resources__threads=4, resources__cpus=6).cpus == 6
    assert spec(resources__device="cuda").gpus == spec(resources__device="cuda:0").gpus == 1
    assert spec(resources__device="cuda:2").gpus == 3
    assert spec(resources__device="cuda", resources__gpus=2).gpus == 2


def test_clip_bounds_must_be_in_order() -> None:
    assert "low below high" in problems(obs__clip_range=[1, -1])["obs.clip_range"]


@pytest.mark.parametrize(
    "kwargs",
    [{"a": float("nan")}, {"a": [float("inf")]}, {1: 2}, {"a": {None: 1}}, {"a": object()}, [1]],
)
def test_keyword_arguments_are_what_json_can_hold(kwargs: Any) -> None:
    assert "JSON values" in problems(env__kwargs=kwargs)["env.kwargs"]


def test_keyword_arguments_are_not_nested_without_end() -> None:
    deep: dict[str, Any] = {}
    deep["a"] = deep
    assert "env.kwargs" in problems(env__kwargs=deep)


def test_pending_options_are_listed_and_refused_in_one_sentence() -> None:
    made = spec(agent__algorithm="dqn", store__backend="mlflow", store__tracking_uri="http://x")
    assert pending(made) == ["store.backend", "store.tracking_uri"]
    with pytest.raises(OptionPending) as caught:
        refuse_pending(made)
    assert caught.value.message == (
        'store.backend is "mlflow", but the mlflow tracker is not in this release (only local is); '
        "the same goes for store.tracking_uri"
    )


def test_a_group_that_is_switched_off_is_not_pending() -> None:
    assert pending(spec(metrics__endpoint="http://x", metrics__protocol="http")) == []
    on = pending(spec(metrics__enable=True, metrics__endpoint="http://x"))
    assert on == ["metrics.enable", "metrics.endpoint"]


def test_the_default_spec_is_not_pending() -> None:
    refuse_pending(spec())

"""One option, one value, many names: every way of setting it gives the same spec and hash."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from typer.main import get_command

from rl_orch.cli.arguments import expanded
from rl_orch.cli.commands import check, launch
from rl_orch.cli.spec_flags import ChangedOptions, SpecArguments
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.interactive import training
from rl_orch.spec import live, reader
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.aliases import FACTORS, PRODUCT
from rl_orch.spec.checks import value_at
from rl_orch.spec.groups import ENCODERS
from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, aliases_of, json_schema, short_names, table
from rl_orch.spec.part_traits import COLLECTORS, ENGINES
from rl_orch.spec.resolve import resolve
from rl_orch.spec.tuned import resolve_tuned
from tests.unit.test_spec_values import camel

BASE: dict[str, Any] = {
    "tuned": False,
    "env.id": "CartPole-v1",
    "train.batch_size": 1,
    "gates.min_return": 0.0,
    "gates.margin": 1.0,
    "eval.every": 1000,
}
"""A spec in which any single option may take any of its values."""

PROGRAM: dict[str, Any] = {
    "tuned": False,
    "env.id": "CartPole-v1",
    "runner.name": "external",
    "runner.command": ["train"],
}
"""The same for the options of programs that are not ours."""

PARTNER = dict(zip(FACTORS, reversed(FACTORS), strict=True))
"""A factor is given together with the other one."""

SCHEMA = json_schema()
SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("ab 'é€", max_size=5)
KEYS = st.from_regex(r"k[a-z0-9_]{0,6}", fullmatch=True)
MAPS = st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3))
SIGNS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cf"])
WORDS = st.text(SIGNS, min_size=1, max_size=20)
ARGUMENTS = st.lists(st.text(SIGNS, max_size=20), min_size=1, max_size=5)
SIZES = st.lists(st.integers(1, 16384), max_size=32)
ALIASES = st.none() | st.from_regex(r"m[a-z0-9._-]{0,9}", fullmatch=True)
NAMED = {
    "train.batch_size": st.sampled_from([2**power for power in range(12)]),
    "train.off_policy": st.sampled_from([False, None]),
    "resources.device": st.sampled_from(["auto", "cpu", "mps", "cuda", "cuda:3"]),
    "obs.clip_range": st.none() | st.tuples(st.floats(-1e6, -1e-3), st.floats(0, 1e6)).map(list),
    "name": WORDS.map(lambda word: f"n{word}"),
    "agent.network.hidden_sizes": SIZES,
    "agent.network.critic_hidden_sizes": st.none() | SIZES,
    "tuned": st.just("none"),
    "env.kwargs": MAPS,
    "env.info_metrics": st.lists(WORDS, max_size=5),
    "env.wrappers": st.sampled_from([[], ["ClipAction"], [{"name": "TimeLimit", "k": [1]}, "m:W"]]),
    "agent.options": MAPS,
    "feature.options": MAPS,
    "agent.algorithm": st.sampled_from([*BUILT_IN]),
    "feature.encoder": st.sampled_from(ENCODERS),
    "train.observers": st.lists(WORDS, max_size=5) | st.just([{"name": "m:C", "k": [1]}, "m:D"]),
    "train.engine": st.sampled_from([*ENGINES]),
    "rollout.collector": st.sampled_from([*COLLECTORS]),
    "train.clip_reward": st.none() | st.tuples(st.floats(-1e6, -1e-3), st.floats(0, 1e6)).map(list),
    "train.ent_coef": st.floats(0, 1e6),
    "train.target_entropy": st.just("auto") | st.floats(-1e6, 1e6),
    "seeds": st.none()
    | st.integers(1, 1000)
    | st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20, unique=True),
    "gates.min_success_rate": st.none() | st.floats(0, 0.5),
    "eval.final_episodes": st.integers(10, 100_000),
    "eval.metrics": st.lists(WORDS, max_size=5),
    "gates.min_episodes": st.none() | st.integers(1, 100_000),
    "gates.metrics": st.dictionaries(KEYS, st.sampled_from([">= 3", "<= 0.5", "> -1"])),
    "gates.no_regression": ALIASES,
    "gates.improvement": ALIASES,
    "schedule.after": st.lists(WORDS, max_size=5),
    "tags": st.dictionaries(KEYS, WORDS, max_size=5),
    "start.digest": st.none() | st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    "role": st.none() | st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True),
    "store.trackers": st.sampled_from([[], ["tensorboard"], [{"name": "tensorboard", "k": [1]}]]),
    "runner.command": ARGUMENTS,
    "runner.policy": ARGUMENTS,
    "runner.env": st.dictionaries(KEYS, st.text(SIGNS, max_size=20)),
}
"""Values of options whose schema does not say all of what they may be."""


def values(option: Option) -> SearchStrategy[Any]:
    """Any value that the option may take, in the form that JSON has for it."""
    if option.path in NAMED:
        return NAMED[option.path]
    if option.path in FACTORS:
        return st.integers(1, 10**6)
    schema = schema_of(option.path)
    return st.one_of([from_schema(part) for part in schema.get("anyOf", [schema])])


def schema_of(path: str) -> dict[str, Any]:
    """What the JSON Schema says of an option."""
    node = SCHEMA
    for part in path.split("."):
        node = node["properties"][part]
        if "$ref" in node:
            node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def from_schema(schema: dict[str, Any]) -> SearchStrategy[Any]:
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if schema["type"] == "number":
        low = schema.get("exclusiveMinimum", schema.get("minimum", -1e12))
        high = schema.get("exclusiveMaximum", schema.get("maximum", 1e12))
        return st.floats(
            low,
            high,
            exclude_min="exclusiveMinimum" in schema,
            exclude_max="exclusiveMaximum" in schema,
            allow_subnormal=False,
        )
    if schema["type"] == "string":
        return WORDS.filter(lambda word: word.strip().lower() not in ("null", "none"))
    return {"boolean": st.booleans(), "null": st.none()}[schema["type"]]


def base_for(option: Option) -> dict[str, Any]:
    """What else the file says, by path."""
    ours = option.group != "runner" or option.path == "runner.name"
    base: dict[str, Any] = BASE if ours else PROGRAM
    partner = {PARTNER[option.path]: 3} if option.path in FACTORS else {}
    return {path: value for path, value in (base | partner).items() if path != option.path}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Maps in maps from dotted paths."""
    document: dict[str, Any] = {}
    for path, value in flat.items():
        *groups, name = path.split(".")
        node = document
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = value
    return document


def in_camel_case(path: str) -> str:
    return ".".join(camel(part) for part in path.split("."))


def from_file(flat: dict[str, Any], *, dotted: bool = False) -> Spec:
    """The spec of a file that says this."""
    document = flat if dotted else nested(flat)
    data = yaml.safe_dump(document, allow_unicode=True).encode()
    return resolve(reader.parse(data, source="test"))


def as_text(value: Any) -> str:
    """A value as a variable or a flag holds it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_override(value: Any) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, str):
        escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
        return "'" + re.sub(r"(\\+)$", r"\1\1", escaped) + "'"
    if isinstance(value, list):
        return "[" + ",".join(map(as_override, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_override(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


def as_flag(option: Option, flag: str, value: Any) -> str:
    if option.switch:
        return flag if value else flag.replace("--", "--no-", 1)
    joined = "=" if flag.startswith("--") else ""
    return f"{flag}{joined}{as_text(value)}"


class Typed:
    """The command-line parser of `rlctl check` and `launch`, in front of nothing."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._app = typer.Typer()
        self._app.command()(expanded(self._capture()))
        self._command = get_command(self._app)
        self._specs: list[Spec] = []

    def spec(self, *words: str) -> Spec:
        """The spec that is typed by some words, after the file of `base_for`."""
        self._command.main(["-f", str(self._file), *words], standalone_mode=False)
        return self._specs[-1]

    def write(self, flat: dict[str, Any]) -> None:
        """Put something into the file."""
        self._file.write_text(yaml.safe_dump(nested(flat)), "utf-8")

    def flags(self) -> set[str]:
        """Every flag that is understood."""
        return flags_of(self._app) - {"--help"}

    def _capture(self) -> Callable[..., None]:
        def capture(typed: SpecArguments) -> None:
            self._specs.append(typed.spec())

        return capture


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    with pytest.MonkeyPatch.context() as patch:
        for option in table().values():
            for name in option.variables:
                patch.delenv(name, raising=False)
        yield Typed(tmp_path_factory.mktemp("specs") / "base.yaml")


every_option = pytest.mark.parametrize("option", table().values(), ids=lambda option: option.path)
a_few = settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
)


@every_option
@a_few
@given(data=st.data())
def test_every_way_of_setting_an_option_gives_the_same_spec(
    option: Option, typed: Typed, data: DataObject
) -> None:
    value = data.draw(values(option))
    base = base_for(option)
    wanted = resolve(nested(base | {option.path: value}))
    assert meaning(wanted, option) == (3 * value if option.path in FACTORS else value)

    for path in (option.path, *aliases_of(option.path)):
        for key in (path, in_camel_case(path)):
            override = f"{key}={as_override(value)}"
            assert same(from_file(base | {key: value}), wanted), key
            assert same(from_file(base | {key: value}, dotted=True), wanted), key
            assert same(resolve(nested(base), overrides=[override]), wanted), override
    for name in option.variables:
        assert same(resolve(nested(base), variables={name: as_text(value)}), wanted), name
    typed.write(base)
    for flag in option.flags:
        if not (option.switch and value is None):
            assert same(typed.spec(as_flag(option, flag, value)), wanted), flag


@every_option
@a_few
@given(data=st.data())
def test_an_override_beats_a_flag_beats_a_variable_beats_the_file_beats_the_default(
    option: Option, data: DataObject
) -> None:
    in_file, in_variable, in_flag, in_override = (data.draw(values(option)) for _ in range(4))
    document = nested(base_for(option) | {option.path: in_file})
    variables = {option.variables[-1]: as_text(in_variable)}
    flags = {option.path: as_text(in_flag)}
    overrides = [f"{option.path}={as_override(in_override)}"]

    def seen(spec: Spec) -> Any:
        times = 3 if option.path in FACTORS else 1
        found = meaning(spec, option)
        return found // times if times > 1 else found

    assert seen(resolve(document)) == in_file
    assert seen(resolve(document, variables=variables)) == in_variable
    assert seen(resolve(document, variables=variables, flags=flags)) == in_flag
    assert (
        seen(resolve(document, variables=variables, flags=flags, overrides=overrides))
        == in_override
    )
    if option.path not in (*FACTORS, *BASE, *PROGRAM):
        reset = resolve(document, variables=variables, overrides=[f"~{option.path}"])
        assert meaning(reset, option) == option.default


def test_one_word_stands_for_a_list_of_one_and_for_the_name_of_a_runner() -> None:
    train = ["./train"]
    for spec in (
        resolve({"env.id": "x", "runner": "external", "runner.command": "./train"}),
        resolve({"env.id": "x"}, overrides=["runner=external", "runner.command=./train"]),
        resolve({"env.id": "x", "runner": {"name": "external", "command": train}}),
        resolve(
            {"env.id": "x"}, variables={"RL_RUNNER": "external", "RL_RUNNER_COMMAND": "./train"}
        ),
        resolve(
            {"env.id": "x"}, flags={"runner.name": "external", "runner.command": '["./train"]'}
        ),
    ):
        assert (spec.runner.name, list(spec.runner.command)) == ("external", train)
        assert spec.algo == "external"


def test_a_word_that_looks_like_a_number_or_a_command_line_stays_as_it_is() -> None:
    for text in ("007", "1e3", "true", "python train.py --lr 1", "{a"):
        assert resolve({"env.id": "x"}, flags={"schedule.after": text}).schedule.after == (text,)
    assert resolve({"env.id": "x"}, overrides=["schedule.after=007"]).schedule.after == ("007",)


def test_check_and_launch_take_the_flags_that_are_tested_here(typed: Typed) -> None:
    tested = typed.flags()
    for command in (check.command, launch.command):
        app = typer.Typer()
        app.command()(expanded(command))
        assert tested <= flags_of(app)


def test_every_flag_and_every_variable_belongs_to_one_option() -> None:
    flags = [flag for option in table().values() for flag in option.flags]
    variables = [name for option in table().values() for name in option.variables]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables))


def same(spec: Spec, wanted: Spec) -> bool:
    return spec == wanted and spec.config_hash == wanted.config_hash


def meaning(spec: Spec, option: Option) -> Any:
    """The value of an option, or what a factor brings about, in the form that JSON has for it."""
    value = value_at(spec, PRODUCT if option.path in FACTORS else option.path)
    return list(value) if isinstance(value, tuple) else value


def flags_of(app: typer.Typer) -> set[str]:
    """Every spelling of every flag that a command takes."""
    parameters = get_command(app).params
    return {flag for each in parameters for flag in (*each.opts, *each.secondary_opts)}


BASE_KWARGS = {"env": {"id": "CartPole-v1", "kwargs": {"a": 1, "inner": {"b": 2}}}}


@pytest.mark.parametrize(
    ("overrides", "kwargs"),
    [
        (["env.kwargs.c=3"], {"a": 1, "inner": {"b": 2}, "c": 3}),
        (["+env.kwargs.camelCase=x"], {"a": 1, "inner": {"b": 2}, "camelCase": "x"}),
        (["env.kwargs.inner.b=5"], {"a": 1, "inner": {"b": 5}}),
        (["~env.kwargs.a"], {"inner": {"b": 2}}),
        (["env.kwargs={z:1}", "env.kwargs.y=2"], {"z": 1, "y": 2}),
        (["env.kwargs.y=2", "env.kwargs={z:1}"], {"z": 1}),
    ],
)
def test_entries_of_a_map_are_set_one_by_one(overrides: list[str], kwargs: dict[str, Any]) -> None:
    assert resolve(BASE_KWARGS, overrides=overrides).env.kwargs == kwargs


@pytest.mark.parametrize(
    ("text", "kwargs"),
    [
        ('{"a": 1}', {"a": 1}),
        ("a=1", {"a": 1}),
        ("a=1.5,b=two,c=True,d='x'", {"a": 1.5, "b": "two", "c": True, "d": "x"}),
        ("goal:None", {"goal": None}),
    ],
)
def test_a_map_may_be_typed_as_pairs(text: str, kwargs: dict[str, Any]) -> None:
    document = {"env.id": "CartPole-v1"}
    assert resolve(document, flags={"env.kwargs": text}).env.kwargs == kwargs
    assert resolve(document, variables={"RL_ENV_KWARGS": text}).env.kwargs == kwargs
    tagged = resolve(document, flags={"tags": "a=1"})
    assert tagged.tags == {"a": "1"}


FLAT: dict[str, Any] = {
    "env": "CartPole-v1",
    "algo": "ppo",
    "n_timesteps": "1e5",
    "n_envs": 4,
    "learning_rate": "1e-3",
    "seed": 3,
    "policy": "MlpPolicy",
    "net_arch": [32, 32],
    "n_steps": "32",
}
"""A spec in the words of Stable-Baselines3, without groups."""


def test_short_names_mean_the_same_in_files_overrides_flags_and_python() -> None:
    spec = resolve(
        {
            "env": {"id": "CartPole-v1", "num_envs": 4, "seed": 3},
            "agent": {
                "algorithm": "ppo",
                "policy_type": "MlpPolicy",
                "network": {"hidden_sizes": [32, 32]},
            },
            "train": {"total_timesteps": 100_000, "lr": 1e-3},
            "rollout": {"steps": 32},
        }
    )
    words = {name: json.dumps(value).replace('"', "") for name, value in FLAT.items()}
    overrides = [f"{name}={word}" for name, word in words.items()]
    given_flags = {short_names()[name]: word for name, word in words.items()}
    assert resolve(FLAT) == spec
    assert resolve({"rl": FLAT}) == spec
    assert resolve(overrides=overrides) == spec
    assert resolve(flags=given_flags) == spec
    rest = {name: value for name, value in FLAT.items() if name not in ("env", "algo")}
    assert resolve(training._document(FLAT["env"], FLAT["algo"], rest)) == spec


def test_a_short_name_stands_for_one_option_alone() -> None:
    last_words = [path.rpartition(".")[2] for path in table()]
    for name, path in short_names().items():
        assert path in table(), name
        by_flag = f"--{name.replace('_', '-')}" in table()[path].flags
        assert by_flag or last_words.count(name) <= 1, name


@pytest.mark.parametrize("other", [{"train": {"lr": 1e-4}}, {"learning_rate": 1e-4}])
def test_a_short_name_and_another_value_by_its_path_is_a_mistake(other: dict[str, Any]) -> None:
    with pytest.raises(SpecInvalid, match=r"train\.lr is given twice"):
        resolve({"env": "CartPole-v1", "lr": 1e-3} | other)


@pytest.mark.parametrize(
    "arguments",
    [
        {"net_arch": [32, 32], "activation_fn": "nn.ReLU"},
        {"net_arch": {"pi": [32, 32], "vf": [32, 32]}, "activation_fn": "relu"},
        {"net_arch": [{"pi": [32, 32], "vf": [32, 32]}], "activation_fn": "th.nn.ReLU"},
        "dict(net_arch=[32, 32], activation_fn=nn.ReLU)",
        "dict(net_arch=dict(pi=[32, 32], vf=[32, 32]), activation_fn=nn.ReLU)",
    ],
)
def test_the_arguments_of_a_policy_are_options_of_its_network(arguments: Any) -> None:
    network = resolve({"env": "CartPole-v1", "policy_kwargs": arguments}).agent.network
    assert (network.hidden_sizes, network.activation) == ((32, 32), "relu")


@pytest.mark.parametrize(
    "arguments",
    [
        *({"net_arc": [32]}, {"net_arch": {"pi": [32], "vf": [64]}}, 3),
        *("dict(", "print()", "dict(**{})", "[" * 5000, "dict(net_arch=f())"),
    ],
)
def test_arguments_of_a_policy_that_mean_nothing_here_are_refused(arguments: Any) -> None:
    with pytest.raises(SpecInvalid) as raised:
        resolve({"env": "CartPole-v1", "policy_kwargs": arguments})
    assert "net_arch" in str(raised.value) or "hidden_sizes" in str(raised.value)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "tqc", "crossq"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"net_arch": {"pi": [64], "qf": [128]}},
        "dict(net_arch=dict(pi=[64], qf=[128]))",
        "{'net_arch': {'pi': [64], 'qf': [128]}}",
        "dict(net_arch=[dict(pi=[64], qf=[128])])",
    ],
)
def test_critics_may_have_other_layers_than_the_policy(algorithm: str, arguments: Any) -> None:
    asked = {"env": "x", "algo": algorithm}
    network = resolve(asked | {"policy_kwargs": arguments}).agent.network
    assert (network.hidden_sizes, network.critic_hidden_sizes) == ((64,), (128,))
    with pytest.raises(SpecInvalid, match="critic_hidden_sizes is given twice"):
        resolve(asked | {"policy_kwargs": arguments, "critic_hidden_sizes": [1]})


def test_critics_of_the_same_layers_are_said_to_have_them() -> None:
    asked = {"env": "x", "algo": "crossq", "net_arch": {"pi": [8], "qf": [8]}}
    assert resolve(asked).agent.network.critic_hidden_sizes == (8,)


def test_other_layers_of_the_value_function_are_told_to_be_nowhere() -> None:
    with pytest.raises(SpecInvalid) as raised:
        resolve({"env": "x", "policy_kwargs": "dict(net_arch=[dict(pi=[8], vf=[4])])"})
    assert "same widths" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("MlpLstmPolicy", "MlpPolicy"),
        ("CnnLstmPolicy", "CnnPolicy"),
        ("MultiInputLstmPolicy", "MultiInputPolicy"),
    ],
)
@pytest.mark.parametrize("algorithm", ["ppo", "RecurrentPPO", "a2c"])
def test_a_policy_of_sb3_contrib_that_remembers_is_a_memory(
    algorithm: str, policy: str, expected: str
) -> None:
    ours = "dict(lstm_hidden_size=32, n_lstm_layers=1, shared_lstm=True, enable_critic_lstm=False)"
    asked = {"env": "x", "algo": algorithm, "policy": policy, "policy_kwargs": ours}
    spec = resolve(asked)
    assert (spec.agent.policy_type, spec.feature.encoder) == (expected, "lstm")
    assert spec.feature.embed_dim == 32
    assert resolve(asked, overrides=["feature.encoder=gru"]).feature.encoder == "gru"


@pytest.mark.parametrize(
    "argument", ["n_lstm_layers=2", "shared_lstm=False", "enable_critic_lstm=True"]
)
def test_another_memory_than_ours_is_refused_with_the_reason(argument: str) -> None:
    with pytest.raises(SpecInvalid, match=r"policy_kwargs\.\w+ is \w+; must be \w+: "):
        resolve({"env": "x", "policy_kwargs": f"dict({argument})"})


@pytest.mark.parametrize("value", [[4, "step"], (4, "step"), "(4, 'step')", '[4, "step"]'])
def test_a_frequency_in_steps_is_a_count(value: Any) -> None:
    assert resolve({"env": "x", "algo": "sac", "train_freq": value}).rollout.steps == 4


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("train_freq", [1, "episode"], "not in episodes"),
        ("train_freq", "(1, 'episode')", "not in episodes"),
        ("ent_coef", "auto_0.1", "ent_coef=auto"),
    ],
)
def test_a_value_of_the_zoo_that_cannot_be_had_is_answered_with_what_can(
    name: str, value: Any, said: str
) -> None:
    with pytest.raises(SpecInvalid) as raised:
        resolve({"env": "x", "algo": "sac", name: value})
    assert said in str(raised.value.hint)


@pytest.mark.parametrize(
    ("name", "path", "schedule"),
    [
        ("learning_rate", "train.lr", "train.lr_schedule"),
        ("clip_range", "train.clip_range", "train.clip_schedule"),
    ],
)
def test_a_number_that_falls_as_the_zoo_writes_it_is_a_number_and_its_schedule(
    name: str, path: str, schedule: str
) -> None:
    env = {"env": "CartPole-v1", "tuned": False}
    plain = resolve(env | {path: 0.001, schedule: "linear"})
    for spec in (
        resolve(env | {name: "lin_0.001"}),
        resolve(env | {path: "lin_1e-3"}),
        resolve(env, overrides=[f"{name}=lin_0.001"]),
        resolve(env, flags={path: "lin_0.001"}),
        resolve(env, variables={table()[path].variables[0]: "lin_0.001"}),
        SpecArguments(["env=CartPole-v1", "tuned=false"], hyperparams=[f"{name}:lin_0.001"]).spec(),
    ):
        assert spec == plain
    with pytest.raises(SpecInvalid, match=f"{schedule} is given twice"):
        resolve(env | {name: "lin_0.001", schedule: "constant"})
    with pytest.raises(SpecInvalid, match=rf"{path} is \"lin_x\""):
        resolve(env | {name: "lin_x"})


def on_frozen_lake(*overrides: str, **given: Any) -> Spec:
    """The spec of a command line, in an environment without tuned hyperparameters."""
    return SpecArguments(["env=FrozenLake-v1", "tuned=false", *overrides], **given).spec()


@pytest.mark.parametrize(
    "written",
    ["net_arch:[32,32]", """net_arch:"[32,32]\"""", "policy_kwargs:dict(net_arch=[32,32])",
     """policy_kwargs:"dict(net_arch=[32, 32])\"""", """policy_kwargs:{"net_arch":[32,32]}""",
     "policy_kwargs:dict(net_arch=dict(pi=[32,32], vf=[32,32]))"],
)  # fmt: skip
def test_hyperparameters_are_taken_as_the_zoo_writes_them(written: str) -> None:
    spec = on_frozen_lake(hyperparams=["gamma:0.9", written])
    assert spec == on_frozen_lake("gamma:0.9", written, hyperparams=["gamma:0.9"])
    assert (spec.train.gamma, spec.agent.network.hidden_sizes) == (0.9, (32, 32))


def test_a_hyperparameter_may_have_the_last_word_of_an_option_as_its_name() -> None:
    written = "normalize:{'norm_obs': True, 'norm_reward': False}"
    for spec in (
        on_frozen_lake(hyperparams=[written]),
        on_frozen_lake(written, hyperparams=["gamma=0.9"]),
    ):
        assert (spec.obs.normalize, spec.train.normalize_reward) == ("running", False)


@pytest.mark.parametrize("text", ['{"net_arch":[32,32]}', "dict(net_arch=[32, 32])"])
def test_the_arguments_of_a_policy_are_a_flag(text: str) -> None:
    assert on_frozen_lake(policy_kwargs=text).agent.network.hidden_sizes == (32, 32)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("net_arch:wide", r'hidden_sizes is "wide" \(from net_arch\)'),
        ("policy_kwargs:dict(net_arch=f())", "policy_kwargs"),
        ("policy_kwargs:dict(net_arc=[32])", r"policy_kwargs\.net_arc is unknown"),
        ("policy_kwargs:3", "policy_kwargs"),
        ("lerning_rate:3", "Did you mean 'learning_rate'"),
    ],
)
def test_a_wrong_hyperparameter_is_called_what_it_was_typed_as(written: str, said: str) -> None:
    with pytest.raises(BadInput) as raised:
        on_frozen_lake(hyperparams=[written])
    text = f"{raised.value} {raised.value.hint}"
    assert re.search(said, text), text
    assert "--" not in text


def test_several_arguments_of_an_environment_may_follow_one_another() -> None:
    kwargs = {"is_slippery": False, "map_name": "8x8"}
    first = {"flag_env__kwargs": "is_slippery:False"}
    assert on_frozen_lake("map_name:8x8", **first).env.kwargs == kwargs
    both = on_frozen_lake("map_name:8x8", "n_steps:64", hyperparams=["gamma:0.9"], **first)
    assert (both.env.kwargs, both.train.gamma, both.rollout.steps) == (kwargs, 0.9, 64)
    with pytest.raises(BadInput) as raised:
        on_frozen_lake("map_name:8x8")
    assert "map_name=8x8" in raised.value.findings()[0]["hint"]


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--env-kwargs", "a=200", "--env-kwargs", "b=rew"], "env.kwargs", {"a": 200, "b": "rew"}),
        (["--env-kwargs", '{"a": {"c": 1}}', "--env-kwargs", "b=[]"], "env.kwargs",
         {"a": {"c": 1}, "b": []}),
        (["--env-kwargs=a=1", "--env-kwargs=a=1"], "env.kwargs", {"a": 1}),
        (["--env-kwargs", "a=200", "b=rew"], "env.kwargs", {"a": 200, "b": "rew"}),
        (["--tags", "team=x", "--tags", "b=2", "c=3"], "tags", {"team": "x", "b": "2", "c": "3"}),
        (["--env-wrappers", "A", "--env-wrappers", "B"], "env.wrappers", ("A", "B")),
        (["--env-wrappers", '["B", "C"]', "--env-wrappers", "A"], "env.wrappers", ("B", "C", "A")),
        (["--after", "007", "--after", "x"], "schedule.after", ("007", "x")),
        (["--net-arch", "64,64", "--net-arch", "64"], "agent.network.hidden_sizes", (64, 64, 64)),
        (["--lr", "1", "--learning-rate", "1", "--lr", "1"], "train.lr", 1),
        (["--policy-kwargs", "dict(net_arch=[8])", "--policy-kwargs", '{"ortho_init": false}'],
         "agent.network.hidden_sizes", (8,)),
    ],
)  # fmt: skip
def test_maps_of_several_flags_are_merged_and_lists_appended(
    words: list[str], path: str, value: Any, typed: Typed
) -> None:
    typed.write(BASE)
    assert value_at(typed.spec(*words), path) == value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env-kwargs", "a=1", "--env-kwargs", "a=2"], "a of --env-kwargs is given twice"),
        (["--env-kwargs", "a=1", "--env-kwargs", "{a"], "env.kwargs is"),
        (["--lr", "1", "--lr", "2"], "--lr is given twice, as 1 and as 2"),
        (["--env-wrappers", "A", "--env-wrapper", "B"], "--env-wrappers is given twice"),
        (["--hyperparams", "lr:1", "lr:2"], "lr is given twice"),
        (["--env-kwargs", "a=1", "--tags", "b=2", "where=3"], "env.kwargs.where=3"),
        (["--env-kwargs", "a=1", "lrr=3"], "Did you mean train.lr?"),
    ],
)
def test_what_several_flags_say_of_one_thing_must_agree(
    words: list[str], said: str, typed: Typed
) -> None:
    typed.write(BASE)
    with pytest.raises(BadInput) as raised:
        typed.spec(*words)
    assert said in f"{raised.value} {raised.value.hint}"


def test_flags_of_a_run_that_goes_on_add_up_as_those_of_a_new_one() -> None:
    typed = ChangedOptions(
        ["b=2", "gamma=0.5"], flag_tags=["a=1", "c=x y"], flag_schedule__after=["007", "x"]
    )
    spec = resolve({"env": "x"}, overrides=typed.overrides)
    assert (spec.tags, spec.schedule.after) == ({"a": "1", "b": "2", "c": "x y"}, ("007", "x"))
    assert spec.train.gamma == 0.5


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--vec-env", "subproc"], "env.backend", "async"),
        (["--vec-env", "dummy"], "env.backend", "sync"),
        (["-i", "x"], "start.from", "x"),
        (["--start-e", "0.5"], "train.exploration_initial_eps", 0.5),
        (["--end-e", "0.25"], "train.exploration_final_eps", 0.25),
        (["--exploration-fraction", "0.25"], "train.exploration_fraction", 0.25),
        (["--clip-coef", "0.1"], "train.clip_range", 0.1),
        (["--target-network-frequency", "500"], "train.target_update_interval", 500),
        (["--no-norm-adv"], "train.normalize_advantage", False),
        (["--update-epochs", "4"], "train.update_epochs", 4),
        (["--tau", "0.5"], "train.tau", 0.5),
        (["--num-steps", "128"], "rollout.steps", 128),
    ],
)
def test_flags_of_the_zoo_and_of_cleanrl_mean_what_they_mean_there(
    words: list[str], path: str, value: Any, typed: Typed
) -> None:
    typed.write(BASE)
    assert value_at(typed.spec(*words), path) == value


def test_a_file_of_the_zoo_by_environment_is_told_how_to_write_it() -> None:
    document: dict[str, dict[str, Any]] = {
        "MountainCar-v0": {"n_envs": 16, "n_timesteps": 1e6, "policy": "MlpPolicy"},
        "CartPole-v1": {"n_envs": 8},
    }
    with pytest.raises(SpecInvalid) as raised:
        resolve(document)
    (problem,) = raised.value.problems
    assert "rl-zoo3" in problem.message
    assert "env: MountainCar-v0" in str(problem.hint)
    flat = {"env": "MountainCar-v0", **document["MountainCar-v0"]}
    assert resolve(flat).train.total_timesteps == 1_000_000


@pytest.mark.parametrize(
    ("text", "steps"), [("45k", 45_000), ("1M", 10**6), ("1.5M", 1_500_000), ("2 k", 2000)]
)
def test_thousands_and_millions_have_their_letters(text: str, steps: int) -> None:
    quoted = f"'{text}'" if " " in text else text
    for spec in (
        resolve({"env": "CartPole-v1", "n_timesteps": text}),
        resolve({"env": "CartPole-v1"}, flags={PRODUCT: text}),
        resolve({"env": "CartPole-v1"}, overrides=[f"{PRODUCT}={quoted}"]),
        resolve({"env": "CartPole-v1", "epochs": text, "steps_per_epoch": 1}),
    ):
        assert spec.train.total_timesteps == steps


@pytest.mark.parametrize("text", ["1.0005k", "k", "1kM", "-1k", "1G"])
def test_part_of_a_step_is_no_count(text: str) -> None:
    with pytest.raises(SpecInvalid, match=r"train\.total_timesteps"):
        resolve({"env": "CartPole-v1", "n_timesteps": text})


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("RL_ALGO", "DQN", "agent.algorithm", "dqn"),
        ("RL_LR", "0.5", "train.lr", 0.5),
        ("RL_LEARNING_RATE", "0.5", "train.lr", 0.5),
        ("RL_GAMMA", "0.5", "train.gamma", 0.5),
        ("RL_N_ENVS", "3", "env.num_envs", 3),
        ("RL_ENV", "Taxi-v3", "env.id", "Taxi-v3"),
        ("RL_NET_ARCH", "[8]", "agent.network.hidden_sizes", (8,)),
    ],
)
def test_short_names_are_variables_too(name: str, text: str, path: str, value: Any) -> None:
    spec = resolve({"env": "CartPole-v1"}, variables={name: text})
    assert value_at(spec, path) == value


def test_a_short_variable_and_a_long_one_that_differ_are_one_option_given_twice() -> None:
    with pytest.raises(SpecInvalid, match=r"train\.lr is given twice"):
        resolve({"env": "CartPole-v1"}, variables={"RL_LR": "1e-3", "RL_TRAIN_LR": "1e-4"})


NORMALIZED = [
    ("dict(norm_obs=True, norm_reward=False)", "running", False),
    ("dict(norm_obs=False, norm_reward=True)", "none", True),
    ("dict(norm_obs=False)", "none", True),
    ("{'norm_obs': True, 'norm_reward': False}", "running", False),
    ({"norm_reward": False}, "running", False),
]


@pytest.mark.parametrize(("written", "observations", "rewards"), NORMALIZED)
def test_a_normaliser_of_the_zoo_says_what_is_normalised(
    written: Any, observations: str, rewards: bool
) -> None:
    for spec in (
        resolve({"env": "CartPole-v1", "normalize": written}),
        resolve({"env": "CartPole-v1"}, flags={"normalize": written}),
    ):
        assert (spec.obs.normalize, spec.train.normalize_reward) == (observations, rewards)


def test_clips_of_a_normaliser_of_the_zoo_are_taken_along() -> None:
    text = "dict(norm_obs=True, clip_obs=5.0, clip_reward=4)"
    spec = resolve({"env": "CartPole-v1", "normalize": text})
    assert (spec.obs.clip_range, spec.train.clip_reward) == ((-5.0, 5.0), (-4.0, 4.0))


@pytest.mark.parametrize(
    ("text", "sizes"), [("32,32", (32, 32)), ("64", (64,)), ("[8, 8]", (8, 8))]
)
def test_lists_of_whole_numbers_may_have_commas_alone(text: str, sizes: tuple[int, ...]) -> None:
    path = "agent.network.hidden_sizes"
    for spec in (
        resolve({"env": "x"}, flags={path: text}),
        resolve({"env": "x"}, flags={"agent.network.critic_hidden_sizes": text, path: text}),
        resolve({"env": "x"}, variables={"RL_NET_ARCH": text}),
    ):
        assert spec.agent.network.hidden_sizes == sizes
    assert resolve({"env": "x", "net_arch": "8, 8"}).agent.network.hidden_sizes == (8, 8)
    assert resolve({"env": "x"}, overrides=["net_arch=64"]).agent.network.hidden_sizes == (64,)


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("2h", 7200), ("1d", 86400), ("9", 9)])
def test_seconds_may_be_a_span_of_time(text: str, seconds: float) -> None:
    for spec in (
        resolve({"env": "x"}, flags={"schedule.time_limit_s": text}),
        resolve({"env": "x", "time_limit": text}),
        resolve({"env": "x"}, overrides=[f"schedule.time_limit_s={text}"]),
    ):
        assert spec.schedule.time_limit_s == seconds
    with pytest.raises(SpecInvalid, match="90m"):
        resolve({"env": "x"}, flags={"schedule.time_limit_s": "0m"})


def test_a_flag_is_named_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["rlctl", "check", "--env", "CartPole-v1", "--net_arch", "wide"]
    monkeypatch.setattr("sys.argv", words)
    typed = SpecArguments(flag_agent__network__hidden_sizes="wide", flag_env__id="CartPole-v1")
    with pytest.raises(SpecInvalid) as refused:
        typed.spec()
    (problem,) = refused.value.problems
    assert "(from --net-arch)" in problem.message


def test_numbers_that_stand_alone_are_told_to_be_one_word() -> None:
    with pytest.raises(BadInput) as refused:
        SpecArguments(["2", "3"], flag_seeds="1")
    assert refused.value.hint == "For example: --seeds 1,2,3"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train.lr", "1e-3"], "In one word: train.lr=1e-3"),
        (["gamma", "1"], "In one word: gamma=1"),
        (["env", "Taxi"], "In one word: env=Taxi"),
        (["seed=1", "lr", "gamma=1"], "In one word: lr=VALUE"),
    ],
)
@pytest.mark.parametrize("group", [SpecArguments, ChangedOptions])
def test_an_override_that_is_typed_with_a_space_is_told_to_be_one_word(
    words: list[str], hint: str, group: Callable[[list[str]], object]
) -> None:
    with pytest.raises(BadInput) as refused:
        group(words)
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        ({"tags": "team"}, "Write team=VALUE."),
        ({"agent.algorithm": "reinforce.Reinforce"}, "Did you mean reinforce:Reinforce?"),
        ({"feature.encoder": "my.parts.Encoder"}, "Did you mean my.parts:Encoder?"),
    ],
)
def test_a_form_that_is_nearly_right_is_answered_with_the_right_one(
    flags: dict[str, str], hint: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        resolve({"env": "x"}, flags=flags)
    assert refused.value.hint == hint


def test_a_run_that_goes_on_takes_short_names_too() -> None:
    spec = resolve({"env": "CartPole-v1", "lr": 1e-3})
    assert live.change(spec, ["lr=1e-4"]) == {"train.lr": [1e-3, 1e-4]}
    with pytest.raises(BadInput, match=r"agent\.algorithm cannot change"):
        live.change(spec, ["algo=nothing_like_it", "buffer_size=-1"])


@pytest.mark.parametrize(("written", "whole"), [("Taxi", "Taxi-v4"), ("CartPole", "CartPole-v1")])
def test_an_id_without_its_version_is_that_of_the_newest(written: str, whole: str) -> None:
    told: list[str] = []
    spec = resolve_tuned({"env": written}, say=told.append)
    assert spec == resolve_tuned({"env": whole})
    assert spec.config_hash == resolve_tuned(overrides=[f"env.id={whole}"]).config_hash
    assert told[0] == f"{written} is {whole}, its newest version"


@pytest.mark.parametrize("written", ["Taxi-v3", "NoSuchThing", "my_module:Mine", "Taxi-v99"])
def test_an_id_that_is_whole_or_not_known_is_left_as_it_is(written: str) -> None:
    assert resolve_tuned({"env": written}).env.id == written


def test_a_stored_spec_keeps_the_id_that_it_was_trained_by() -> None:
    stored = resolve({"env": "Taxi"})
    assert resolve(stored.model_dump(mode="json"), overrides=["seed=1"]).env.id == "Taxi"

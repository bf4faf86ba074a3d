"""The mistakes that people make in a spec, all of them: each is answered in a few plain lines.

A mistake ends with exit code 2, at most five lines and no traceback. The lines name the path, the
value, what is allowed, and the nearest match where there is one; with `--json`, a document does.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import Ran, python_path
from tests.integration.conftest import RLCTL, Shell

Rlctl = Callable[..., Ran]

CARTPOLE = "env: {id: CartPole-v1}\n"
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MODULES = {
    "crashing.py": "import os\nos._exit(7)\n",
    "raising.py": "raise RuntimeError('boom')\n",
    "odd_spaces.py": """
import gymnasium
from gymnasium import spaces

class Odd(gymnasium.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

two, box = spaces.Discrete(2), spaces.Box(0, 1, (2,))
gymnasium.register("TextSeen-v0", lambda: Odd(spaces.Dict({"a": spaces.Text(5)}), two))
gymnasium.register("TextDone-v0", lambda: Odd(box, spaces.Text(5)))
gymnasium.register("Free-v0", lambda: Odd(box, spaces.Box(-float("inf"), 1, (2,))))
""",
}


@dataclass(frozen=True)
class Mistake:
    """Something typed, and what the answer must name."""

    what: str
    says: tuple[str, ...]
    """The path and the value as they are shown, and what is allowed."""
    near: str | None = None
    yaml: str | None = None
    json: str | None = None
    words: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    command: str = "check"


def in_yaml(what: str, text: str, *says: str, near: str | None = None) -> Mistake:
    return Mistake(what, says, near, yaml=text)


def in_json(what: str, text: str, *says: str) -> Mistake:
    return Mistake(what, says, json=text)


def typed(what: str, words: str, *says: str, near: str | None = None) -> Mistake:
    return Mistake(what, says, near, words=("--env", "CartPole-v1", *words.split()))


def about_env(what: str, env_id: str, *says: str, near: str | None = None) -> Mistake:
    return Mistake(what, ("env.id", env_id, *says), near, words=("--env", env_id))


IN_FILES = [
    in_yaml(
        "a typo in a key",
        CARTPOLE + "train: {lerning_rate: 1e-3}",
        "train.lerning_rate",
        "train has: total_timesteps, lr,",
        near="train.learning_rate",
    ),
    in_yaml("a typo in a group", "evn: {id: x}", "evn", "a spec has: ", near="env"),
    in_yaml(
        "a typo in a group in a group",
        CARTPOLE + "policy: {netwrk: {shared: true}}",
        "policy.netwrk",
        "agent has: algorithm, policy_type, network",
        near="agent.network",
    ),
    in_yaml(
        "an option in the wrong group",
        CARTPOLE + "agent: {learning_rate: 1}",
        "agent.learning_rate",
        "agent has: ",
        near="train.learning_rate",
    ),
    in_yaml("no environment", "train: {lr: 1e-3}", "env.id", "missing", "--env CartPole-v1"),
    in_yaml("text for a number", CARTPOLE + "train: {lr: fast}", "train.lr", '"fast"', "(0, 10]"),
    in_yaml(
        "negative steps",
        CARTPOLE + "train: {total_timesteps: -5}",
        "train.total_timesteps",
        "-5",
        "a whole number in [1, 10^13]",
    ),
    in_yaml("no envs", "env: {id: x, num_envs: 0}", "env.num_envs", "0", "in [1, 65536]"),
    in_yaml("half an env", "env: {id: x, num_envs: 1.5}", "env.num_envs", "1.5", "a whole number"),
    in_yaml(
        "an unknown algorithm",
        CARTPOLE + "agent: {algorithm: pppo}",
        "agent.algorithm",
        '"pppo"',
        "one of ppo, a2c, dqn, qrdqn, sac, td3",
        near="ppo",
    ),
    in_yaml(
        "a misspelt name of a function",
        CARTPOLE + "agent: {network: {activation: rellu}}",
        "agent.network.activation",
        '"rellu"',
        "one of tanh, relu",
        near="relu",
    ),
    in_yaml(
        "a minibatch that does not divide the rollout",
        CARTPOLE + "train: {batch_size: 100}",
        "train.batch_size",
        "100",
        "must divide env.num_envs × rollout.steps = 8 × 256 = 2048",
        "Nearest that do: 64, 128.",
    ),
    in_yaml("a boolean for a number", CARTPOLE + "train: {lr: yes}", "train.lr", "true", "(0, 10]"),
    in_yaml("a list for a number", CARTPOLE + "train: {lr: [1]}", "train.lr", "[1]", "(0, 10]"),
    in_yaml(
        "a fraction for a list",
        CARTPOLE + "agent: {netArch: 0.5}",
        "agent.network.hidden_sizes",
        "0.5 (from agent.netArch)",
        "e.g. [64, 64]",
    ),
    in_yaml("a value for a group", CARTPOLE + "rollout: 256", "rollout", "256", "any of: steps"),
    in_yaml("NaN", CARTPOLE + "train: {lr: .nan}", "train.lr", "NaN", "a finite number"),
    in_yaml(
        "infinity",
        CARTPOLE + "gates: {min_return: .inf}",
        "gates.min_return",
        "Infinity",
        "a finite number",
    ),
    in_yaml("1e400", CARTPOLE + "eval: {every: 1e400}", "eval.every", "1e400", "[1, 10^13]"),
    in_yaml(
        "2^63",
        CARTPOLE + f"env.seed: {2**63}",
        "env.seed",
        str(2**63),
        "a whole number in [0, 2^32 - 1]",
    ),
    in_yaml(
        "NaN inside keyword arguments",
        "env: {id: x, kwargs: {a: .nan}}",
        "env.kwargs",
        '{"a": NaN}',
        "all numbers finite",
    ),
    in_yaml(
        "an option set twice by alias",
        CARTPOLE + "train: {lr: 1, learningRate: 2}",
        "train.lr",
        "as 1 by train.lr and as 2 by train.learningRate",
        "Keep one",
    ),
    in_yaml(
        "one factor of two",
        CARTPOLE + "train: {epochs: 5}",
        "train.steps_per_epoch",
        "missing; train.epochs needs it to give train.total_timesteps",
    ),
    in_yaml(
        "patience without a gate",
        CARTPOLE + "gates: {patience: 3}",
        "gates.patience",
        "3",
        "Set gates.min_return as well.",
    ),
    in_yaml(
        "an algorithm that is not what was expected",
        CARTPOLE + "train: {off_policy: true}",
        "train.off_policy",
        "true",
        "Set it to false",
    ),
    in_yaml(
        "a memory that the algorithm cannot train",
        CARTPOLE + "agent: {algorithm: dqn}\nfeature: {encoder: gru}",
        "feature.encoder",
        "gru",
        "Use ppo or a2c",
    ),
    in_yaml(
        "masks that the algorithm does not heed",
        CARTPOLE + "agent: {algorithm: sac, action_masks: true}",
        "agent.action_masks",
        "true",
        "Use ppo, a2c, dqn or qrdqn",
    ),
    in_yaml(
        "sequences that do not fit",
        CARTPOLE + "feature: {encoder: lstm}\ntrain: {sequence_length: 7}",
        "train.sequence_length",
        "7",
        "must divide rollout.steps = 256 and train.batch_size = 64",
    ),
    in_yaml(
        "no updates at all",
        CARTPOLE + "agent: {algorithm: dqn}\ntrain: {gradient_steps: 0}",
        "train.gradient_steps",
        "0",
        "-1 for one for each transition",
    ),
    in_yaml(
        "learning that starts after the end",
        CARTPOLE + "agent: {algorithm: dqn}\ntrain: {total_timesteps: 50}",
        "train.learning_starts",
        "100",
        "must be below train.total_timesteps = 50",
    ),
    in_yaml(
        "a temperature that is not learned",
        CARTPOLE + "train: {ent_coef: auto}",
        "train.ent_coef",
        "auto",
        "Set a number ≥ 0.",
    ),
    in_yaml(
        "control characters in a name",
        CARTPOLE + 'name: "a\\e[31mb\\a"',
        "name",
        r'"a\u001b[31mb\u0007"',
        "one line of printable text",
    ),
    in_yaml("a number for a name", CARTPOLE + "name: 7", "name", "7", "Put it in quotes"),
    in_yaml("a version to come", CARTPOLE + "spec_version: 2", "spec_version", "2", "must be 1"),
    in_yaml("an empty file", "", "spec.yaml is empty", "must be a map of groups"),
    in_yaml("a list of specs", "- env", "spec.yaml is a list", "must be a map of groups"),
    in_yaml("broken YAML", "env: {id: x", "spec.yaml", "line 1, column 12", "expected ',' or '}'"),
    in_yaml("tabs", "env:\n\tid: x", "spec.yaml", "line 2, column 1", "Indent with spaces"),
    in_yaml("a key twice", "env: {id: x}\nenv: {id: y}", "'env' appears twice", "keep one"),
    in_yaml("an alias bomb", BOMB, "spec.yaml", "more than 2,000 values"),
    in_yaml("an alias in itself", "a: &a [*a]", "spec.yaml", "an alias contains itself"),
    in_yaml("a tag", "env: !!python/object:os.x {}", "'!!python/object:os.x'", "plain values"),
    in_yaml("deep YAML", "[" * 99_999, "spec.yaml", "nested deeper than 30 levels"),
    in_yaml("a huge file", "#" * 10**6, "spec.yaml", "at most 100,000 bytes"),
    in_json("broken JSON", '{"env": ', "spec.json is not JSON", "line 1 column 9"),
    in_json("a key twice in JSON", '{"env": {}, "env": {}}', "'env' appears twice", "keep one"),
    in_json("deep JSON", "[" * 99_999, "spec.json", "nested deeper than 30 levels"),
    Mistake("a missing file", ("'spc.yaml' does not exist", "there are: ppo-CartPole-v1.yaml"),
            words=("-f", "spc.yaml")),
    Mistake("a folder for a file", ("'.' cannot be read", "directory"), words=("-f", ".")),
]  # fmt: skip

ON_THE_COMMAND_LINE = [
    typed("an unknown group in an override", "trian.lr=1", "trian.lr", "a spec has",
          near="train.lr"),
    typed("an override without =", "train.lr", "train.lr is no override", "train.lr=VALUE"),
    typed("a word that is no override", "nosuch", "'nosuch' is not und", "group.option=value"),
    typed("a sweep in an override", "train.lr=1,2", "'train.lr=1,2'", "a run takes one"),
    typed("a wrong value in an override", "train.gamma=2", "train.gamma", "2", "(0, 1]"),
    typed("a wrong value in a flag", "--gamma 2", "train.gamma", "2 (from --gamma)", "(0, 1]"),
    typed("an unknown flag", "--lerning-rate 1", "--lerning-rate", "`rlctl check --help`",
          near="--learning-rate or --train-learning-rate or --learning-starts"),
    typed("a device that does not exist", "--device gpu", "resources.device", '"gpu"',
          "cpu, mps, cuda or cuda:N"),
    Mistake("an unknown command", ("no command 'chekc'", "there are: launch, resume, check"),
            near="`rlctl check`", command="chekc"),
    Mistake("an unknown group of options", ("trian is unknown", "a spec has: "), near="train",
            words=("trian",), command="options"),
    Mistake("broken JSON in a variable",
            ("agent.network.hidden_sizes", '"[64," (from RL_AGENT_NET_ARCH)', "must be JSON"),
            words=("--env", "x"), variables={"RL_AGENT_NET_ARCH": "[64,"}),
    Mistake("a wrong value in a variable",
            ("env.num_envs", '"many" (from RL_ENV_N_ENVS)', "a whole number in [1, 65536]"),
            words=("--env", "x"), variables={"RL_ENV_N_ENVS": "many"}),
    Mistake("a tracker that this release lacks",
            ("store.backend", '"mlflow"', "not in this release (only local is)"),
            words=("--env", "x", "--backend", "mlflow"), command="launch"),
    typed("an unknown encoder", "--feature-encoder cn", "feature.encoder", '"cn"',
          "one of auto, mlp, cnn", near="cnn"),
]  # fmt: skip

ABOUT_THE_ENVIRONMENT = [
    about_env("an unknown env", "CartPol-v1", "no such environment", near="'CartPole-v1'"),
    about_env("a Box2D env that moved on", "LunarLander-v2", "Write 'LunarLander-v3'"),
    about_env("a MuJoCo env that moved on", "Ant-v2", "'Ant-v5'"),
    about_env("shell characters", "$(touch gotcha);`x`-v0", "an id looks like 'Name-v0'"),
    about_env("a leading dash", "-CartPole-v1", "no such environment", near="'CartPole-v1'"),
    about_env("a path", "file:///etc/passwd", "an id looks like 'Name-v0'"),
    about_env("a module that does not exist", "nomodule:X-v0", "there is no module 'nomodule'"),
    about_env("a module that raises", "raising:X-v0", "RuntimeError: boom"),
    about_env("a module that ends the process", "crashing:X-v0", "exit code 7"),
    about_env("observations that nobody learns from", "odd_spaces:TextSeen-v0", "'a' is a Text",
              "must be a Box, Discrete"),
    Mistake("actions that nobody takes",
            ("env.id", "TextDone-v0", "Text", "must be Discrete, or Box of floats"),
            words=("--env", "odd_spaces:TextDone-v0")),
    Mistake("actions without bounds", ("env.id", "Free-v0", "no bounds; sac needs", "ppo or a2c"),
            words=("--env", "odd_spaces:Free-v0", "--algo", "sac")),
    Mistake("a continuous algorithm on a discrete env",
            ("env.id", "CartPole-v1", "Discrete(2)", "must be Box of floats, for sac",
             "ppo, a2c, dqn, qrdqn"),
            words=("--env", "CartPole-v1", "--algo", "sac")),
    Mistake("a network for images in an env without any",
            ("feature.encoder", "'cnn'", "takes images", "'auto' or 'mlp'"),
            words=("--env", "CartPole-v1", "--feature-encoder", "cnn")),
    Mistake("a policy for images expected of an env without any",
            ("agent.policy_type", "'CnnPolicy'", "Box of shape [4]", "Set it to 'MlpPolicy'"),
            words=("--env", "CartPole-v1", "agent.policy_type=CnnPolicy")),
    Mistake("masks that the environment does not give",
            ("agent.action_masks", "true", "gives no mask", "action_masks()"),
            words=("--env", "CartPole-v1", "agent.action_masks=true")),
    Mistake("masks for actions that are no choices",
            ("agent.action_masks", "true", "Pendulum-v1 takes Box actions"),
            words=("--env", "Pendulum-v1", "agent.action_masks=true")),
    Mistake("discrete actions expected of a Box env",
            ("agent.discrete", "true", "Pendulum-v1 takes Box actions", "Set it to false"),
            words=("--env", "Pendulum-v1", "--agent-discrete")),
    Mistake("a discrete algorithm on a Box env",
            ("env.id", "Pendulum-v1", "must be Discrete, for dqn", "ppo, a2c, sac, td3"),
            words=("--env", "Pendulum-v1", "--algo", "dqn")),
    Mistake("Box actions expected of a discrete env",
            ("agent.discrete", "false", "CartPole-v1 takes Discrete actions", "Set it to true"),
            words=("--env", "CartPole-v1", "--no-agent-discrete")),
    Mistake("a device that this machine lacks", ("resources.device", "cuda", "to auto or cpu"),
            words=("--env", "CartPole-v1", "--device", "cuda:99")),
]  # fmt: skip

EXTRAS = {"Box2D": ("LunarLander-v3", "box2d"), "mujoco": ("HalfCheetah-v5", "mujoco")}
ABOUT_THE_ENVIRONMENT += [
    about_env(f"an env without {module}", env_id, f"pip install 'rl-orch[{extra}]'")
    for module, (env_id, extra) in EXTRAS.items()
    if find_spec(module) is None
]

MISTAKES = [*IN_FILES, *ON_THE_COMMAND_LINE, *ABOUT_THE_ENVIRONMENT]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_is_answered_in_a_few_plain_lines(
    mistake: Mistake, rlctl: Rlctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [mistake.command, *_files(mistake, tmp_path), *mistake.words]
    for name, value in mistake.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))

    ran = rlctl(*words)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) <= 5
    assert "Traceback" not in ran.err
    for part in mistake.says:
        assert part in ran.err
    assert mistake.near is None or f"Did you mean {mistake.near}?" in ran.err
    assert not (tmp_path / "gotcha").exists()


QUICK = [*IN_FILES, *ON_THE_COMMAND_LINE, ABOUT_THE_ENVIRONMENT[0]]


@pytest.mark.parametrize("mistake", QUICK, ids=lambda mistake: mistake.what)
def test_a_mistake_is_answered_with_a_document_where_one_is_asked_for(
    mistake: Mistake, rlctl: Rlctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [mistake.command, "--json", *_files(mistake, tmp_path), *mistake.words]
    for name, value in mistake.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))

    ran = rlctl(*words)
    assert (ran.code, ran.err) == (2, "")
    document = json.loads(ran.out, parse_constant=pytest.fail)
    if "error" in document:
        [error] = document.values()
        assert error["code"] in ("bad_input", "option_pending", "spec_invalid")
    else:
        assert set(document) == {
            *("ok", "config_hash", "settled", "pending", "seeds", "warnings", "errors")
        }
        assert (document["ok"], document["config_hash"]) == (False, None)
        [error] = document["errors"]
        assert set(error) >= {"path", "value", "message"}
    said = f"{error.get('path')} {error['message']} {error.get('hint')}"
    for part in mistake.says:
        assert part in said


def _files(mistake: Mistake, folder: Path) -> list[str]:
    """The files that a mistake is made with, and the words that name the spec among them."""
    (folder / "ppo-CartPole-v1.yaml").touch()
    for name, code in MODULES.items():
        (folder / name).write_text(code)
    for name, text in {"spec.yaml": mistake.yaml, "spec.json": mistake.json}.items():
        if text is not None:
            (folder / name).write_text(text, "utf-8")
            return ["-f", name]
    return []


def test_bytes_that_are_no_text_are_shown_escaped(shell: Shell) -> None:
    words: list[str | bytes] = [
        *RLCTL,
        "check",
        "--env",
        "x",
        "--gamma",
        b"\xff\xe2\x82\xac",
        "--json",
    ]
    for encoding in ("utf-8", "ascii"):
        done = subprocess.run(
            words,
            env=shell.environment | {"PYTHONIOENCODING": encoding},
            cwd=shell.folder,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (2, b"")
        assert json.loads(done.stdout)["errors"][0]["value"] == "\udcff€"


def test_there_are_more_mistakes_here_than_a_user_will_make() -> None:
    assert len(MISTAKES) >= 25
    assert len({mistake.what for mistake in MISTAKES}) == len(MISTAKES)

"""Which engine trains, and what steps: the rule, what it says, and what a spec may insist on."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rl_orch.errors import BadInput
from rl_orch.rl.engine import engine_of, resolve_auto, why_not
from rl_orch.rl.envs.leaves import leaves_of
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.resolve import resolve
from rl_orch.spec.upgrade import upgraded

VECTOR = spaces.Box(-1.0, 1.0, (3,))


def a_spec(*overrides: str, algorithm: str = "ppo", env_id: str = "CartPole-v1") -> Any:
    return resolve({"env": {"id": env_id}, "agent": {"algorithm": algorithm}}, overrides=overrides)


def reason(spec: Any, space: Any = VECTOR, actions: str = "Discrete") -> str | None:
    return why_not(spec, leaves_of(space, stacked=False), actions)


@pytest.mark.parametrize("algorithm", [name for name in BUILT_IN if name != "crossq"])
def test_kernels_train_the_dense_networks_of_our_algorithms(algorithm: str) -> None:
    actions = "Box" if BUILT_IN[algorithm].bounded_actions else "Discrete"
    assert reason(a_spec(algorithm=algorithm), actions=actions) is None


@pytest.mark.parametrize(
    ("algorithm", "override", "why"),
    [
        ("ppo", "agent.network.activation=gelu", "agent.network.activation is 'gelu'"),
        ("ppo", "feature.encoder=lstm", "feature.encoder is 'lstm'"),
        ("ppo", "feature.embed_dim=8", "feature.embed_dim is set"),
        ("ppo", "train.precision=bfloat16", "train.precision is 'bfloat16'"),
        ("ppo", "train.compile=true", "train.compile is true"),
        ("ppo", "agent.action_masks=true", "agent.action_masks is true"),
        ("ppo", "resources.device=cuda", "resources.device is 'cuda'"),
        ("dqn", "agent.network.dueling=true", "agent.network.dueling is true"),
        ("sac", "train.use_sde=true", "train.use_sde is true"),
        ("crossq", "train.lr=1e-3", "crossq's layers normalise"),
        ("tqc", "train.use_sde=true", "train.use_sde is true"),
    ],
)
def test_what_kernels_cannot_train_is_left_to_torch(
    algorithm: str, override: str, why: str
) -> None:
    found = reason(a_spec(override, algorithm=algorithm))
    assert found is not None
    assert found.startswith(why)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "Discrete"),
        (spaces.Dict({"a": VECTOR}), "Discrete"),
        (VECTOR, "MultiDiscrete"),
        (VECTOR, "MultiBinary"),
    ],
)
def test_other_spaces_are_left_to_torch(space: Any, actions: str) -> None:
    assert reason(a_spec(), space, actions) is not None
    leaves = leaves_of(space, stacked=False)
    assert engine_of(a_spec(), leaves, actions) == "torch"
    with pytest.raises(BadInput, match=r"train\.engine is .kernels., but") as caught:
        engine_of(a_spec("train.engine=kernels"), leaves, actions)
    assert caught.value.path == "train.engine"


@pytest.mark.parametrize(
    ("width", "threads", "asked", "found"),
    [
        (512, 2, "auto", "kernels"),
        (513, 2, "auto", "torch"),
        (513, 1, "auto", "kernels"),
        (513, 2, "kernels", "kernels"),
    ],
)
def test_wide_layers_are_left_to_torch_where_there_are_threads(
    width: int, threads: int, asked: str, found: str
) -> None:
    spec = a_spec(
        f"agent.network.hidden_sizes=[{width}]",
        f"resources.threads={threads}",
        f"train.engine={asked}",
    )
    assert engine_of(spec, leaves_of(VECTOR, stacked=False), "Discrete") == found


def test_a_spec_that_asks_for_torch_gets_it() -> None:
    leaves = leaves_of(VECTOR, stacked=False)
    assert engine_of(a_spec("train.engine=torch"), leaves, "Discrete") == "torch"


@pytest.mark.parametrize(
    ("env_id", "overrides", "backend"),
    [
        ("CartPole-v1", (), "native"),
        ("CartPole-v1", ("env.backend=sync",), "sync"),
        ("CartPole-v1", ("obs.stack_frames=2",), "sync"),
        ("CartPole-v1", ("env.kwargs={sutton_barto_reward: true}",), "sync"),
        ("HalfCheetah-v5", (), "sync"),
    ],
)
def test_what_is_left_open_is_settled(
    env_id: str, overrides: tuple[str, ...], backend: str
) -> None:
    spec = a_spec(*overrides, env_id=env_id)
    found = resolve_auto(spec, leaves_of(VECTOR, stacked=False), "Discrete")
    assert (found.env.backend, found.train.engine) == (backend, "kernels")
    assert found.config_hash == spec.config_hash


def test_a_run_of_a_release_without_kernels_goes_on_in_torch() -> None:
    assert upgraded({"train": {"lr": 0.1}}) == {"train": {"lr": 0.1, "engine": "torch"}}
    assert upgraded({"train": {"engine": "kernels"}}) == {"train": {"engine": "kernels"}}

"""Policies that tests export: of every algorithm, with weights and statistics of their own.

They are not trained. Their layers are drawn wide enough that scores differ from state to state.
"""

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rl_orch.export import parity
from rl_orch.export.bundle import ExportSubject, assembled, described
from rl_orch.export.formats import Writer
from rl_orch.export.graph import PolicyGraph
from rl_orch.io.checkpoints import checkpoint_files
from rl_orch.io.files import sealed
from rl_orch.io.policies import bundles
from rl_orch.io.policies.bundles import GraphParity
from rl_orch.io.policies.requests import FILES
from rl_orch.io.run import manifest
from rl_orch.io.run.directory import RunDir
from rl_orch.rl.envs import vector
from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.learn.learner import algorithm
from rl_orch.rl.policies.observations import RunningNormalizer
from rl_orch.rl.policies.policy import PolicyModule, Setup, policy_tensors
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.learning import known_envs


class TwoBoxes(known_envs.IdentityDict):
    """As `IdentityDict`, without the part whose frames cannot be stacked."""

    observation_space = spaces.Dict(
        {"picture": spaces.Box(0, 255, (36, 36), np.uint8), "side": spaces.Box(-1.0, 1.0, (2,))}
    )

    def drawn(self, quadrant: NDArray[np.int64]) -> dict[str, Any]:
        """The same but for the noise."""
        shown = super().drawn(quadrant)
        return {name: shown[name] for name in ("picture", "side")}


class Nested(known_envs.IdentityDict):
    """As `IdentityDict`, with a Dict and a Tuple inside; one key has a stroke, one is a number."""

    observation_space = spaces.Dict(
        {
            "eye/left": spaces.Dict({"picture": spaces.Box(0, 255, (36, 36), np.uint8)}),
            "body": spaces.Tuple((spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3))),
            "0": spaces.Box(-1.0, 1.0, (2,)),
        }
    )

    def drawn(self, quadrant: NDArray[np.int64]) -> Any:
        """The same, nested."""
        shown = super().drawn(quadrant)
        body = (shown["side"], shown["noise"])
        return {"eye/left": {"picture": shown["picture"]}, "body": body, "0": -shown["side"]}


class Several(known_envs.IdentityDict):
    """As `IdentityDict`, by number."""

    observation_space: Any = spaces.Tuple(
        (spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3), spaces.Dict({"b": spaces.Discrete(3)}))
    )

    def drawn(self, quadrant: NDArray[np.int64]) -> Any:
        """The same but for the picture, in a tuple."""
        shown = super().drawn(quadrant)
        return shown["side"], shown["noise"], {"b": shown["noise"]}


class MaskedInParts(known_envs.MaskedPair):
    """As `MaskedPair`, with a mask for each of the two."""

    def info(self) -> dict[str, Any]:
        """The masks as they are given for MultiDiscrete actions."""
        mask = self.masks[self.order[self.t]]
        return {"action_mask": (mask, mask[::-1])}

    def step(self, action: Any) -> Any:
        """Pays nothing: only what is allowed matters."""
        allowed = self.info()["action_mask"]
        self.t += 1
        assert all(mask[choice] for mask, choice in zip(allowed, action, strict=True))
        return self.seen(), 0.0, self.t == 8, False, self.info()


for own in (TwoBoxes, Nested, Several, MaskedInParts):
    gymnasium.register(f"{own.__name__}-v0", f"{__name__}:{own.__name__}", max_episode_steps=10)

NORMALIZED = {"normalize": "running", "clip_range": [-5.0, 5.0]}
STACKED = {"stack_frames": 4}


def case(env: str, algo: str, **groups: Any) -> dict[str, Any]:
    """The document of a spec; environments whose answers are known go by their class."""
    homes = (known_envs.MODULE, __name__)
    classes = {name: f"{home}:{name}-v0" for home in homes for name in vars(sys.modules[home])}
    env_id = classes.get(env, env)
    agent = {"algorithm": algo} | groups.pop("agent", {})
    document = {"env": {"id": env_id} | groups.pop("env", {}), "agent": agent}
    return document | groups


BOTH = NORMALIZED | STACKED
LSTM = {"encoder": "lstm", "embed_dim": 32}
CASES = {
    "ppo": case("CartPole-v1", "ppo", obs=NORMALIZED),
    "dqn": case("CartPole-v1", "dqn", obs=STACKED),
    "sac": case("Pendulum-v1", "sac", obs=BOTH),
    "recurrent ppo": case("CartPole-v1", "ppo", obs=BOTH, feature=LSTM),
}
"""What bars are set for: PPO, DQN, SAC and recurrent PPO, with normalisation and stacking."""

VARIANTS = CASES | {
    "stacked ppo": case("CartPole-v1", "ppo", obs=BOTH),
    "normalised dqn": case("CartPole-v1", "dqn", obs=BOTH),
    "sac that does not stack": case("Pendulum-v1", "sac", obs=NORMALIZED),
    "recurrent ppo that does not stack": case("CartPole-v1", "ppo", obs=NORMALIZED, feature=LSTM),
}
"""The same, so that each has normalisation, alone or with stacking."""

NEAR = GraphParity(
    rows=64, largest_difference=1e-7, largest_absolute=1e-7, tolerance=1e-5, gap=1e-4
)
STAND_IN = b"\x42\x00" * 100
"""Bytes that read as an ONNX file without data outside it."""


@dataclass
class Case:
    """A policy, its spec and its graph."""

    spec: Spec
    policy: PolicyModule
    graph: PolicyGraph

    def rows(self, count: int) -> parity.ParityRows:
        """What it sees and decides while it plays."""
        return parity.gather(self.policy, self.graph, self.spec, count)

    def parity(self, run: parity.Run, rows: parity.ParityRows) -> GraphParity:
        """How near a graph comes to it."""
        return parity.compare(run, rows, self.policy.action_space)

    def writer(self) -> Writer:
        """Writes its graph."""
        return Writer(self.graph)


def made(document: dict[str, Any]) -> Case:
    """The policy of a document."""
    spec = resolve(document)
    with closing(vector.make(spec, num_envs=1)) as envs:
        setup = Setup(spec, envs.single_observation_space, envs.single_action_space)
    policy = algorithm(spec.agent.algorithm).build_policy(setup)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    rng = np.random.default_rng(6)
    for module in policy.modules():
        if isinstance(module, RunningNormalizer):
            module.update(rng.normal(0.3, 0.7, (50, *module.mean.shape)))
    return Case(spec, policy, PolicyGraph(policy, spec))


def in_run(case: Case, folder: Path) -> Path:
    """A checkpoint of a policy, in a run directory of its own."""
    directory = RunDir(folder)
    told = manifest.describe(case.spec, run_id="r-1", group=None, created_at=0.0)
    directory.create(case.spec, told)
    return checkpoint_files.save(
        directory.checkpoints,
        step=5,
        tensors=policy_tensors(case.policy),
        document={},
        meta={"run_id": "r-1", "attempt": 1},
    )


def bundled(case: Case, path: Path, **graphs: bytes) -> Path:
    """A bundle of a policy. Graphs that are not given, by their format, are stand-ins."""
    report = evaluate(case.policy, case.spec, episodes=4, seed=2, deterministic=True, step=7)
    subject = ExportSubject(case.policy, case.spec, report, {"run": "r-1"})
    document = described(subject, case.graph, dict.fromkeys(FILES, NEAR))
    files = {name: graphs.get(form, STAND_IN) for form, name in FILES.items()}
    if "int8" in graphs:
        files[bundles.INT8] = graphs["int8"]
    whole = assembled(subject, policy_tensors(case.policy), document, files)
    sealed.write(path, whole, noun=bundles.NOUN)
    return path

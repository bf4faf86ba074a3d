"""Kernels compiled by the first update of a training in miniature, which keeps nothing.

Rollouts in one call are left out: whoever trains begins with those, and compiles them meanwhile.
"""

from contextlib import closing

from rl_orch.rl.data.state import StateTree
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec.model import Spec
from rl_orch.spec.part_traits import USUAL_COLLECTOR

ROWS = 4
"""Transitions of a rollout, and of a minibatch."""

MOST_STEPS = 100
"""Iterations within which there has to be an update."""


def compile_updates(spec: Spec) -> None:
    """Compile the kernels of a spec's updates; nothing but compiled code is left."""
    with closing(Training(miniature(spec), NullRecorder(), observers=())) as training:
        for _ in range(MOST_STEPS):
            # The policy itself decides in torch, which compiles nothing.
            batch = training.collector.collect(training.policy, ROWS, StateTree)
            if training.learner.update(batch):
                return


def miniature(spec: Spec) -> Spec:
    """The spec with as little to do as possible for the same kernels."""
    return spec.changed(
        {
            "env.backend": "sync",
            "env.num_envs": 1,
            "rollout.steps": ROWS,
            "rollout.overlap": False,
            "rollout.collector": USUAL_COLLECTOR,
            "train.batch_size": ROWS,
            "train.learning_starts": 1,
            "train.update_epochs": 1,
            "buffer.size": 16 * (ROWS + spec.buffer.n_step),
        }
    )

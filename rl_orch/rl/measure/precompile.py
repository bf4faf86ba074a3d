"""A training in miniature, whose first update has kernels compiled, and which keeps nothing.

Rollouts in one call are left out: whoever trains begins with those, and compiles them meanwhile.
"""

from contextlib import closing

from rl_orch.rl.train import NullRecorder, Training
from rl_orch.spec.model import Spec

ROWS = 4
"""Transitions of a rollout, and of a minibatch."""

MOST_STEPS = 100
"""Iterations within which there has to be an update."""


def precompile(spec: Spec) -> None:
    """Make the first update of a small form of the spec; nothing but compiled code is left."""
    with closing(Training(miniature(spec), NullRecorder())) as training:
        training.policy.acting = None  # To decide in torch compiles nothing.
        for _ in range(MOST_STEPS):
            if training.train_step():
                return


def miniature(spec: Spec) -> Spec:
    """The spec with as little to do as possible for the same kernels."""
    changes = {
        "env": {"backend": "sync", "num_envs": 1},
        "rollout": {"steps": ROWS, "overlap": False},
        "train": {"batch_size": ROWS, "learning_starts": 1, "update_epochs": 1},
        "buffer": {"size": 16 * (ROWS + spec.buffer.n_step)},
    }
    groups = {
        name: getattr(spec, name).model_copy(update=values) for name, values in changes.items()
    }
    return spec.model_copy(update=groups)

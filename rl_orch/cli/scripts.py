"""Other names for commands, as console scripts: each is one of `rlctl`'s verbs."""

import sys

from rl_orch.cli.rlctl import main


def train() -> None:
    """`rl-train`: launch."""
    _as("launch")


def registry_list() -> None:
    """`rl-registry-list`: list models."""
    _as("registry", "list")


def registry_validate() -> None:
    """`rl-registry-validate`: judge a model."""
    _as("registry", "validate")


def load_best() -> None:
    """`rl-load-best`: where the best validated model is."""
    _as("registry", "best")


def evaluate() -> None:
    """`rl-eval --model-id ID`: play a model."""
    _as("eval")


def infer() -> None:
    """`rl-infer --load-best`: ask a model for actions."""
    _as("infer")


def _as(*words: str) -> None:
    sys.argv[1:1] = words
    main()

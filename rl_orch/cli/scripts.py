"""Other names for commands, as console scripts: each is one of `rlctl`'s verbs."""

import sys
from functools import partial

from rl_orch.cli.entry import main


def _as(*words: str) -> None:
    sys.argv[1:1] = words
    main()


train = partial(_as, "launch")
"""`rl-train`."""

registry_list = partial(_as, "registry", "list")
"""`rl-registry-list`."""

registry_validate = partial(_as, "registry", "validate")
"""`rl-registry-validate`."""

load_best = partial(_as, "registry", "best")
"""`rl-load-best`: where the best validated model is."""

evaluate = partial(_as, "eval")
"""`rl-eval --model-id ID`."""

infer = partial(_as, "infer")
"""`rl-infer --load-best`: ask a model for actions."""

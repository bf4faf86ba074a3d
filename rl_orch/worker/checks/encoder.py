"""Whether an encoder that is a plugin encodes what a spec's environment shows, before a run is
made. Loads torch."""

import torch

from rl_orch.errors import Problem, RlctlError
from rl_orch.rl.policies.encoder_trial import ROWS, fault, samples
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.spec.groups import ENCODERS
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import setup_of

HINT = "docs/extending.md says what an encoder is given and returns, and has one."


def problems(spec: Spec) -> list[Problem]:
    """What keeps the spec's encoder from being one; nothing of ours does."""
    path, name = "feature.encoder", spec.feature.encoder
    if name in ENCODERS:
        return []
    space = setup_of(spec).observation_space
    pipeline = ObservationPipeline(space, spec.obs)
    try:
        generator = torch.Generator().manual_seed(0)
        encoder = build_encoder(pipeline, spec.feature, spec.agent.network, generator)
    except RlctlError as error:
        return [Problem(path, name, error.message, error.hint or HINT)]
    batches = (samples(pipeline, space, rows) for rows in (1, ROWS))
    what = next(filter(None, (fault(encoder, batch) for batch in batches)), None)
    return [] if what is None else [Problem(path, name, f"{path} is {name!r}; {what}", HINT)]

"""Whether a run can begin with what its spec names: what does not fit, before anything is made."""

import os

from rl_orch.errors import Problem, RlctlError
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.warm_start import fit
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import on_cpu, setup_of
from rl_orch.worker.policies.snapshots import warm_start


def problems(spec: Spec) -> list[Problem]:
    """What keeps a spec from beginning with the weights that it names; nothing if it names none, or
    such as are yet to be trained."""
    try:
        start = warm_start(spec) if os.path.isabs(spec.start.source or "") else None
        if start is not None:
            learner = build_learner(setup_of(on_cpu(spec)))
            fit(learner, start, spec).refuse(start)
    except RlctlError as error:
        return [Problem("start.from", spec.start.source, error.message, error.hint)]
    return []

"""`python -m rl_orch.worker.checks.device`: which devices can torch use, and can it use this one?

Only torch can tell, so it is asked in a process of its own, and only where a device other than the
CPU is meant.
"""

import sys

import torch

from rl_orch.errors import BadInput
from rl_orch.records.tasks import DeviceAnswer, DeviceTask
from rl_orch.rl.policies.policy import usable_device
from rl_orch.worker.task import Tell, answer_one


def devices(task: DeviceTask, _tell: Tell) -> DeviceAnswer:
    """Devices of torch; and why a policy could not live on the one that is named, if it could not.

    Any could on `auto`.
    """
    problem = None
    try:
        if task.name not in (None, "auto"):
            usable_device(str(task.name))
    except BadInput as error:
        problem = error.message
    return DeviceAnswer(
        torch=torch.__version__,
        cuda_build=torch.version.cuda,
        cuda=tuple(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())),
        mps=torch.backends.mps.is_available(),
        problem=problem,
    )


if __name__ == "__main__":
    sys.exit(answer_one(DeviceTask, devices))

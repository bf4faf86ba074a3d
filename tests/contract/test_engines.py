"""Every engine computes what torch does, up to rounding."""

from typing import Any

from rl_orch import plugins
from rl_orch.testing.engines import EngineContract


def made(name: str) -> Any:
    return plugins.load("engines", name)


class TestTorch(EngineContract):
    make = staticmethod(lambda: made("torch")())


class TestKernels(EngineContract):
    make = staticmethod(lambda: made("kernels")())

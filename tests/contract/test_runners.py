"""Every runner keeps the same contract."""

from rl_orch.core.ports import Runner
from rl_orch.runners.inline import InlineRunner
from rl_orch.runners.local import LocalRunner
from rl_orch.testing import FakeRunner, RunnerContract, trains_to


class TestLocalRunner(RunnerContract):
    """Child processes of this machine."""

    def make_runner(self) -> Runner:
        return LocalRunner()


class TestInlineRunner(RunnerContract):
    """The calling process itself."""

    def make_runner(self) -> Runner:
        return InlineRunner()


class TestFakeRunner(RunnerContract):
    """The fake that other tests rely on."""

    def make_runner(self) -> Runner:
        return FakeRunner(trains_to([1.0]))

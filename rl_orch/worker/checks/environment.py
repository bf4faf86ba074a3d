"""`python -m rl_orch.worker.checks.environment < spec.json`: does the environment exist and suit
the algorithm?

Importing somebody's environment may do anything, so it happens here and not in the command that
asks. It may be started before there is a request, and has then loaded what it needs; it ends with
`OUTDATED` if that has changed meanwhile.
"""

import sys
from importlib.util import find_spec

from rl_orch import plugins
from rl_orch.errors import Problem, SpecInvalid
from rl_orch.io.policies.bundles import ONNX_PACKAGES
from rl_orch.io.processes import import_path
from rl_orch.records.tasks import CheckAnswer, CheckTask
from rl_orch.rl import engine
from rl_orch.rl.envs.describe import describe, named, problems
from rl_orch.rl.envs.trial import EnvTrial, try_out
from rl_orch.spec.engine import left_open
from rl_orch.spec.groups import ENCODERS
from rl_orch.spec.model import Spec
from rl_orch.worker.checks import own_plugins
from rl_orch.worker.task import Tell, answer_lines
from rl_orch.worker.warm.loaded import OUTDATED, LoadedModules


def answer(spec: Spec) -> CheckAnswer:
    """The problems that only the environment itself can tell of; and what the spec leaves open,
    settled."""
    settled: dict[str, str] = {}
    warnings: list[Problem] = []
    if unfit := own_plugins.problems(spec):
        return CheckAnswer(settled={}, problems=tuple(unfit))
    try:
        env = describe(spec)
        spec, warnings = named(spec, env)
        found = problems(spec, env)
        trial = EnvTrial() if found else try_out(spec)
        found += trial.problems
        warnings += trial.warnings
        if spec.eval.video and find_spec("av") is None:
            hint = "Install it with `pip install 'rl-orch[video]'`."
            found.append(Problem("eval.video", True, "films need the package av", hint))
        found += unexportable(spec)
        if spec.feature.encoder not in ENCODERS and not found:
            found += plugins.part("encoder check").problems(spec)
        if spec.start.source is not None and not found:
            found += plugins.part("warm start check").problems(spec)
        if not found:
            settled = left_open(engine.resolve_auto(spec, env.leaves, env.action.kind))
    except SpecInvalid as error:
        found = list(error.problems)
    return CheckAnswer(settled=settled, problems=tuple(found), warnings=tuple(warnings))


def unexportable(spec: Spec) -> list[Problem]:
    """The gates that ask for a bundle, where what writes one is not installed."""
    missing = " and ".join(name for name in ONNX_PACKAGES if find_spec(name) is None)
    hint = "Install it with `pip install 'rl-orch[export]'`."
    asked = {
        f"gates.{name}": getattr(spec.gates, name) for name in ("max_bundle_mb", "export_parity")
    }
    return [
        Problem(path, value, f"{path} asks for a bundle, which needs {missing}", hint)
        for path, value in asked.items()
        if value and missing
    ]


def check(task: CheckTask, _tell: Tell) -> CheckAnswer:
    """The answer about a spec, whose modules are found in its folders."""
    import_path.search(task.module_path)
    return answer(task.spec)


def main() -> int:
    """Answer one request."""
    loaded = LoadedModules.now()
    line = sys.stdin.readline()
    if not line or not loaded.is_current:
        return OUTDATED
    return answer_lines(CheckTask, check, [line])


if __name__ == "__main__":
    sys.exit(main())

"""Failures of copies under way: the copy, the step and the cause, where Gymnasium loses them.

An error that an environment raises in this process tells its own file and line, and is left alone.
"""

import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from rl_orch.errors import RlctlError, with_place
from rl_orch.rl.envs.observations import misfit

EXIT_S = 5.0
"""How long a process may take to end that has closed its pipe."""

GIVES = "A step gives (observation, number, bool, bool, dict)."


class CopyError(Exception):
    """An error of a copy in a process of its own; its text has the type and the place."""


class PassingCopyError(CopyError, OSError):
    """One of the system, which may pass."""


class ToldByText(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of a copy in a process of its own: the type of an error may be unknown
    elsewhere, and its place always is, so that its text has both."""

    def step(self, action: Any) -> Any:
        """One step."""
        try:
            stepped: Any = self.env.step(action)
        except (Exception, SystemExit) as error:
            raise _as_text(error) from error
        if np.ndim(stepped[1]):
            raise ValueError(f"its step gives a reward of {stepped[1]!r}; must be a number")
        return stepped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The first observation of the next episode."""
        try:
            return self.env.reset(seed=seed, options=options)
        except (Exception, SystemExit) as error:
            raise _as_text(error) from error


@contextmanager
def explained(envs: Any, when: str) -> Iterator[None]:
    """Explain what fails meanwhile."""
    try:
        yield
    except Exception as error:
        explain(envs, error, when)
        raise


def explain(envs: Any, error: Exception, when: str) -> None:
    """Raise what is known of an error that stepping or resetting copies raised, if it is more than
    the error tells."""
    inner = envs.unwrapped
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    place = next((n for n, each in enumerate(frames) if each.f_locals.get("self") is inner), None)
    if place is None:
        return
    name = envs.spec.id if envs.spec else "the environment"
    if isinstance(inner, AsyncVectorEnv):
        _explain_processes(inner, error, frames[-1], name, when)
    elif isinstance(inner, SyncVectorEnv) and not _in_a_copy(frames[place + 1 :]):
        _explain_values(inner, error, frames[place], name, when)


def _explain_processes(
    inner: Any, error: Exception, frame: FrameType, name: str, when: str
) -> None:
    if frame.f_code is AsyncVectorEnv._raise_if_errors.__code__:
        copy = frame.f_locals["index"]
        raise RlctlError(f"copy {copy} of {name} failed {when}: {error}") from error
    if not isinstance(error, EOFError | ConnectionError):
        return
    ended = _how_processes_ended(inner.processes)
    # Nothing more will come of what was asked, and who closes it would wait.
    inner._state = AsyncState.DEFAULT
    inner.close(terminate=True)
    # Not from that error: a crash may pass, and is tried again.
    raise RlctlError(f"{ended} {when}; it was of {name}, and env.backend is 'async'") from None


def _how_processes_ended(processes: Sequence[Any]) -> str:
    for process in processes:
        process.join(0)
    if all(process.is_alive() for process in processes):
        processes[0].join(EXIT_S)
    for copy, process in enumerate(processes):
        code = process.exitcode
        if code is not None:
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
            return f"the process of copy {copy} {how}"
    return "the process of a copy closed its pipe"


def _explain_values(inner: Any, error: Exception, frame: FrameType, name: str, when: str) -> None:
    space = inner.single_observation_space
    for copy, observation in enumerate(inner._env_obs):
        what = None if observation is None else misfit(space, observation)
        if what is not None:
            raise RlctlError(f"copy {copy} of {name} gave an {what}, {when}") from error
    copy = frame.f_locals.get("i", 0)
    said = f"copy {copy} of {name} gave what cannot be taken in, {when}"
    raise RlctlError(f"{said}: {type(error).__name__}: {error}", hint=GIVES) from error


def _in_a_copy(frames: Sequence[FrameType]) -> bool:
    return any(isinstance(frame.f_locals.get("self"), gymnasium.Env) for frame in frames)


def _as_text(error: BaseException) -> Exception:
    """An error that any process can read, which is of the system if it was."""
    text = error.message if isinstance(error, RlctlError) else with_place(error)
    passes = isinstance(error, OSError | MemoryError)
    return PassingCopyError(text) if passes else CopyError(text)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

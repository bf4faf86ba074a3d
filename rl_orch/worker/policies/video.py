"""Episodes shown: in a window, or as a film, H.264 in an MP4 file, which every browser plays."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.files import private
from rl_orch.records.tasks import Recorded
from rl_orch.rl.collect.replay_episode import (
    ReplayedEpisode,
    Show,
    frames_per_second,
    rendered,
    replay,
)
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.rendering import explained, prepare

LONGEST = 1_000
"""Frames of a film; what comes after is left out."""


def show(spec: Spec, episode: Recorded, film: Path | None) -> ReplayedEpisode:
    """Drive an episode again, into a film or, without one, in a window."""
    if film is not None:
        prepare(spec)
    try:
        return _shown(spec, episode, film)
    except RlctlError:
        raise
    # What draws is somebody else's code, and so is what it needs of the machine.
    except Exception as error:
        raise explained(spec, error) from error


def _shown(spec: Spec, episode: Recorded, film: Path | None) -> ReplayedEpisode:
    if film is None:
        return replay(rendered(spec, "human"), episode.seed, episode.actions, None)
    env = rendered(spec, "rgb_array")
    with filming(film, frames_per_second(env)) as add:
        return replay(env, episode.seed, episode.actions, add)


@contextmanager
def filming(path: Path, fps: int) -> Iterator[Show]:
    """Function that takes the frames of a film, which is there once it is whole."""
    av = _av()
    if path.suffix.lower() != ".mp4":
        raise BadInput(f"the film is to be {path.name!r}; must end in .mp4", path=str(path))
    private.inner_folder(path.parent)
    part = path.with_name(f".{path.stem}.part.mp4")
    try:
        with av.open(str(part), "w") as container:
            film = _Film(av, container, fps)
            yield film.add
            film.finish()
        part.replace(path)
    except OSError as error:
        raise RlctlError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


class _Film:
    def __init__(self, av: Any, container: Any, fps: int) -> None:
        self._av, self._container = av, container
        self._stream = container.add_stream("libx264", rate=fps)
        self._stream.pix_fmt = "yuv420p"
        self._count = 0

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Another frame; its sides are made even, as the format asks."""
        if self._count == LONGEST:
            return
        height, width = (side - side % 2 for side in frame.shape[:2])
        if self._count == 0:
            self._stream.width, self._stream.height = width, height
        self._count += 1
        even = np.ascontiguousarray(frame[:height, :width])
        shown = self._av.VideoFrame.from_ndarray(even, format="rgb24")
        self._container.mux(self._stream.encode(shown))

    def finish(self) -> None:
        """Write what is still held back."""
        self._container.mux(self._stream.encode(None))


def _av() -> Any:
    try:
        return import_module("av")
    except ImportError:
        raise BadInput(
            "films need the package av, which is not installed",
            hint="Install it with `pip install 'rl-orch[video]'`.",
        ) from None

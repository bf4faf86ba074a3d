"""The streams of a metric index; and what of them counts in the one history of a run."""

from collections.abc import Collection, Mapping

import numpy as np

from rl_orch.io.metrics.database import MetricDatabase, StoredStream
from rl_orch.io.metrics.event_rows import EPISODE_WIDTH, EventRows, Floats
from rl_orch.io.run import events
from rl_orch.records import Episodes, Event, EventKind

KEYS = 4096
"""Curves of one run that are kept; a program that names more of them names its points."""

EPISODES, LINES = "episodes", "lines"
_POINTS, _ORIGINS = "points of ", "origins of "
_POINT_WIDTH, _ORIGIN_WIDTH = 2, 3


class IndexSnapshot:
    """One state of an index, as long as its database is read within one transaction."""

    def __init__(self, stored: MetricDatabase) -> None:
        self._stored = stored
        self._lineage, self._streams = stored.head().lineage, stored.streams()
        self.counts = counts(self._streams)
        """The curves and how many rows each has, those included that do not count."""

    def curve(self, key: str) -> Floats:
        """Step and value of every row of a curve that counts."""
        points = self._floats(_POINTS + key, _POINT_WIDTH)
        return points if self._lineage.is_single else self._counted(points, self._origins(key))

    def rows(self, key: str) -> Floats:
        """Step, value, ts, attempt and seq of every row of a curve that counts."""
        origins = self._origins(key)
        rows = np.hstack([self._floats(_POINTS + key, _POINT_WIDTH), origins])
        return self._counted(rows, origins)

    def episodes(self) -> Episodes:
        """Every episode that counts."""
        rows = self._floats(EPISODES, EPISODE_WIDTH)
        steps, rets, lengths, envs = self._counted(rows, rows).T[:4]
        return Episodes(_integers(steps), tuple(rets.tolist()), _integers(lengths), _integers(envs))

    def events(self, kinds: Collection[EventKind]) -> list[Event]:
        """The events of some kinds that count, in their order."""
        lasts = events.limits(self._lineage.top, self._lineage.starts)
        parsed = map(events.parse, self._bytes(LINES).split(b"\n"))
        wanted = (event for event in parsed if event is not None and event.kind in kinds)
        return [event for event in wanted if event.seq <= lasts.get(event.attempt, 0)]

    def _origins(self, key: str) -> Floats:
        return self._floats(_ORIGINS + key, _ORIGIN_WIDTH)

    def _floats(self, name: str, width: int) -> Floats:
        return np.frombuffer(self._bytes(name)).reshape(-1, width)

    def _bytes(self, name: str) -> bytes:
        return self._stored.read(self._streams[name]) if name in self._streams else b""

    def _counted(self, rows: Floats, origins: Floats) -> Floats:
        """The rows that no later attempt has superseded, by attempt and seq, last in `origins`."""
        return np.compress(self._lineage.counted(origins[:, -2], origins[:, -1]), rows, axis=0)


def _integers(column: Floats) -> tuple[int, ...]:
    return tuple(column.astype(np.int64).tolist())


def counts(streams: Mapping[str, StoredStream]) -> dict[str, int]:
    """The curves among some streams and how many rows each has."""
    return {
        name.removeprefix(_POINTS): stream.size // (8 * _POINT_WIDTH)
        for name, stream in streams.items()
        if name.startswith(_POINTS)
    }


def chunks(batch: EventRows, stored: MetricDatabase) -> dict[str, bytes]:
    """The bytes that a batch adds to each stream of an index; new curves as far as there is room
    for them."""
    kept = counts(stored.streams())
    room = max(0, KEYS - len(kept))
    new = set([key for key in batch.curves if key not in kept][:room])
    added = {LINES: batch.lines, EPISODES: batch.episodes.tobytes()}
    for key, rows in batch.curves.items():
        if key in kept or key in new:
            added[_POINTS + key] = rows[:, :_POINT_WIDTH].tobytes()
            added[_ORIGINS + key] = rows[:, _POINT_WIDTH:].tobytes()
    return {name: data for name, data in added.items() if data}

"""`MetricReports`: metrics of updates and episodes, between two reports."""

from collections.abc import Mapping, Sequence

from rl_orch.records.reports import SUCCESS


class MetricReports:
    """Metrics of updates and episodes that have not been reported yet: of losses and episodes the
    mean is reported, of what is charted (rates and schedules) the last."""

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None) -> None:
        self._sums = {key: (total, count) for key, (total, count) in (sums or {}).items()}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def document(self) -> dict[str, list[float]]:
        """Sum and count by key, as JSON; what a new one is made from."""
        return {key: [*entry] for key, entry in self._sums.items()}

    def add(self, metrics: Mapping[str, float]) -> None:
        """Count the metrics of an update; none are given while nothing is learned."""
        for key, value in metrics.items():
            total, count = self._sums.get(key, (0.0, 0))
            charted = key.startswith("charts/")
            self._sums[key] = (value, 1) if charted else (total + value, count + 1)

    def count(self, metrics: Mapping[str, float]) -> None:
        """Count the metrics of an episode, of which the mean is reported."""
        for key, value in metrics.items():
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + value, count + 1)

    def drain(self) -> dict[str, float]:
        """The metrics to report, none if nothing was learned; and begin anew."""
        means = {key: total / count for key, (total, count) in self._sums.items()}
        self._sums = {}
        return means


def chart_of(metric: str) -> str:
    """The curve of a metric of training episodes."""
    return f"charts/{SUCCESS}" if metric == SUCCESS else f"info/{metric}"

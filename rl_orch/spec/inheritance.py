"""The spec that a new run takes over from the run whose weights it begins with."""

from typing import Any, Protocol

from rl_orch.errors import NotFound
from rl_orch.spec.model import Spec

OWN: Any = {
    **dict.fromkeys(("name", "seeds", "tags", "parent", "role", "start"), True),
    "schedule": {"after"},
}
"""Options that a run does not take over from another one."""


class KnowsViews(Protocol):
    """Where the spec of a run can be looked up: an orchestrator, or a client of one."""

    models: Any

    def show(self, reference: str, *, checkpoints: bool = True) -> Any:
        """A run with its `spec`."""


def inherited(home: KnowsViews, word: str) -> dict[str, Any]:
    """The spec of the run behind a run's or a model's name, as another run takes it over: without
    its name, its relations and its place in the queue."""
    spec: Spec
    try:
        spec = home.show(word, checkpoints=False).spec
    except NotFound:
        model = home.models.get(word)
        spec = home.show(model.run_id, checkpoints=False).spec
    return taken_over(spec)


def taken_over(spec: Spec) -> dict[str, Any]:
    """A spec without what is its run's own, as a document."""
    return spec.model_dump(mode="json", exclude=OWN)

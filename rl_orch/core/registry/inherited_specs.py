"""The spec that a new run takes over from its source of weights, where that may be a path too.

For callers who may look at the files of this machine; others have `spec.inheritance` alone.
"""

from pathlib import Path
from typing import Any

from rl_orch.core.registry import references
from rl_orch.errors import NotFound
from rl_orch.io.policies import artefacts, bundles
from rl_orch.spec.inheritance import KnowsViews, inherited, taken_over
from rl_orch.spec.model import Spec

PLACES = ("registry.db_path",)
"""Options that say where things are on the machine that a bundle was made on."""


def inherited_here(home: KnowsViews, word: str) -> dict[str, Any]:
    """As `inherited`; of a path, the spec of the bundle, or of the run that the files are in."""
    path = references.path_of(word)
    return inherited(home, word) if path is None else taken_over(_spec_at(path))


def _spec_at(path: Path) -> Spec:
    if references.kind_of(path) == "bundle":
        return bundles.read(path).spec.changed(dict.fromkeys(PLACES))
    try:
        return artefacts.spec_of(path)
    except NotFound:
        raise NotFound(
            f"there is no spec.yaml of the run that {str(path)!r} is of",
            path=str(path),
            hint="Say what it has learned, with --env and --algo, or with a spec file.",
        ) from None

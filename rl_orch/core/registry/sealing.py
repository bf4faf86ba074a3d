"""Sealing of models: what acts is on the disk as an artefact before there is a row of it.

Models of earlier releases are checkpoints; each becomes an artefact as it is used, and what was
judged of the checkpoint goes on to count. Whatever cuts that short, the next use finishes it.
"""

import logging
from pathlib import Path

import sqlalchemy as sa

from rl_orch.core.registry.models import Registry, refuse_at_work
from rl_orch.core.store.database import Lock
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import MODELS, VERDICTS
from rl_orch.errors import RlctlError
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.io.run.directory import RunDir
from rl_orch.records import ModelVersion

LOG = logging.getLogger(__name__)


def as_artefact(store: Store, model: ModelVersion) -> ModelVersion:
    """The model as an artefact. One of an earlier release is sealed now; it stays as it is where
    nothing can be written, its run is at work, or its files are not those that were registered."""
    checkpoint = Path(model.model_path)
    here = sealed.manifest_digest(checkpoint)
    if checkpoint != artefacts.places_of(checkpoint)[1]:
        return model
    if model.retiring or store.obstacle is not None:
        return model
    if here is None or model.digest not in (None, here):
        return model
    directory = RunDir(checkpoint.parents[1])
    try:
        with directory.locked(note=False):
            path = artefacts.seal(checkpoint, directory.spec())
        _exchange(store, model, path, here)
    except (RlctlError, OSError) as error:
        LOG.warning("model %s is not sealed yet: %s", model.id, error)
        return model
    return Registry(store).get(model.id)


def _exchange(store: Store, model: ModelVersion, path: Path, checkpoint_digest: str) -> None:
    """Have the row name the artefact, if it is still as it was seen."""
    with store.writing(Lock.REGISTRY) as connection:
        refuse_at_work(connection, model.id, model.run_id)
        seen = (MODELS.c.model_path == model.model_path, MODELS.c.digest == model.digest)
        here = sa.and_(MODELS.c.id == model.id, *seen)
        news = {
            "model_path": str(path),
            "digest": sealed.manifest_digest(path),
            "checkpoint_digest": checkpoint_digest,
        }
        connection.execute(sa.update(MODELS).where(here).values(**news))
        for of, digest in (("model_id", "digest"), ("baseline_id", "baseline_digest")):
            # Before digests were kept, a verdict was on the files that there were.
            unnamed = sa.and_(VERDICTS.c[of] == model.id, VERDICTS.c[digest].is_(None))
            if model.digest is None:
                named = sa.update(VERDICTS).where(unnamed).values({digest: checkpoint_digest})
                connection.execute(named)

"""Agreement of the registry and the files: every model with its artefact, every verdict on it with
the report that it read, and every alias with its history. What it finds, it leaves as it is.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from rl_orch.core.registry import verdicts
from rl_orch.core.registry.aliases import Aliases, present
from rl_orch.core.registry.models import Registry, models
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import MODELS
from rl_orch.errors import Damaged, NotFound, RlctlError
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.records import ModelVersion, RegistryFault, StoredVerdict, Verification


def verify(store: Store, env: str | None = None) -> Verification:
    """Faults by name, missing or changed. Reads every byte of every artefact; writes nothing."""
    query = sa.select(MODELS).order_by(MODELS.c.id)
    with store.reading() as connection:
        listed = models(connection, query if env is None else query.where(MODELS.c.env_id == env))
    registry = Registry(store)
    faults = [
        fault
        for model in listed
        for fault in _of_model(model, partial(registry.verdicts_on, model.id))
    ]
    faults += _of_aliases(Aliases(store), env)
    return Verification(models=len(listed), faults=tuple(faults))


def _of_model(
    model: ModelVersion, judged: Callable[[], list[StoredVerdict]]
) -> Iterator[RegistryFault]:
    if model.retiring:
        there = Path(model.model_path).parent.is_dir()
        how = "rlctl registry prune" if there else f"rlctl rm {model.run_id}"
        sentence = f"model {model.id} is being removed; `{how}` finishes that"
        yield RegistryFault(model_id=model.id, kind="retiring", sentence=sentence)
        return
    yield from _of_files(model)
    for verdict in verdicts.on_files(judged(), model.digests):
        if verdict.report_path is not None:
            yield from _of_report(model, verdict)


def _of_files(model: ModelVersion) -> Iterator[RegistryFault]:
    path = Path(model.model_path)
    fault = partial(RegistryFault, model_id=model.id)
    try:
        artefacts.verify(path)
    except NotFound:
        yield fault(kind="missing", sentence=f"model {model.id} is not at {str(path)!r}")
    except Damaged as error:
        yield fault(kind="damaged", sentence=f"model {model.id}: {error.message}")
    else:
        if model.digest not in (None, sealed.manifest_digest(path)):
            other = f"what is at {str(path)!r} is not the registered one"
            yield fault(kind="changed", sentence=f"model {model.id}: {other}")


def _of_report(model: ModelVersion, newest: StoredVerdict) -> Iterator[RegistryFault]:
    what = None
    try:
        if verdicts.digest(Path(str(newest.report_path))) != newest.report_sha256:
            what = f"another report than is now at {newest.report_path!r}"
    except RlctlError as error:
        what = f"a {error.message}"
    if what is not None:
        sentence = f"model {model.id}: verdict {newest.id} read {what}"
        yield RegistryFault(model_id=model.id, kind="report", sentence=sentence)


def _of_aliases(aliases: Aliases, env: str | None) -> Iterator[RegistryFault]:
    by_history = present(reversed(aliases.history(env=env)))
    real = {(alias.env_id, alias.alias): alias.model_id for alias in aliases.find(env=env)}
    for env_id, alias in sorted({*by_history, *real}):
        said, has = by_history.get((env_id, alias)), real.get((env_id, alias))
        if said != has:
            sentence = f"{alias}@{env_id} is model {has}; by its history it is model {said}"
            yield RegistryFault(model_id=has, kind="alias", sentence=sentence)

"""Many processes at one registry: they train nothing, and register, judge, promote, take back and
prune at random, while some of them are killed. `race` plays it and looks at what is left.
"""

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from rl_orch.core.registry.aliases import Aliases, present
from rl_orch.core.registry.verbs import ModelVerbs
from rl_orch.core.store.runs import Store
from rl_orch.core.verbs import Verbs
from rl_orch.errors import RlctlError
from rl_orch.io.files import sealed
from rl_orch.records import AliasChange, EvalReport, ModelVersion, Run, State
from rl_orch.records.queries import ModelQuery, Query
from rl_orch.testing import FakeRunner, trains_to
from tests.models import PlayedAs, Shop

ENVIRONMENTS = ("CartPole-v1", "Pendulum-v1")
NAMES = ("production", "staging")
PROCESSES = 8
KEPT = 3
START = 12
"""Models at the beginning."""

LOOK_EVERY_S = 0.02
CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Least:
    """How much must have happened before a race is over, whatever time that takes."""

    seconds: float
    kills: int
    changes: int


@dataclass
class Figures:
    """What happened, for people."""

    database: str
    least: Least
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    kills: int = 0
    looks: int = 0
    changes: int = 0
    models: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        return (
            f"{self.database}, {PROCESSES} processes for {self.seconds:.0f} s, {self.kills} kills: "
            f"{kinds}, {self.refused} refusals, {self.changes} changes of aliases, "
            f"{self.looks} looks, {self.models} models left"
        )


class Skill(PlayedAs):
    """Plays every model as well as its number says."""

    def __init__(self) -> None:
        super().__init__({})

    def _report(self, model: ModelVersion, episodes: int) -> EvalReport:
        self.means = {model.id: 300.0 + model.id % 97}
        return super()._report(model, episodes)


class Actor:
    """Does one thing after the other at random, and notes what it was told had happened."""

    def __init__(self, home: Path, location: Path | str, seed: int, note: Path) -> None:
        self.chance = random.Random(seed)
        self.verbs = verbs(home, location)
        self.shop = Shop(home, self.verbs.store)
        self.models: ModelVerbs = self.shop.models(Skill())
        self.note = note

    def live(self) -> None:
        """Act for ever."""
        deeds = {
            self.register: 4, self.promote: 6, self.force: 2, self.validate: 4, self.rollback: 2,
            self.unalias: 1, self.prune: 4, self.remove: 1,
        }  # fmt: skip
        while True:
            (deed,) = self.chance.choices(list(deeds), list(deeds.values()))
            try:
                change = deed()
            except RlctlError as error:
                self.say({"refused": f"{deed.__name__}: {type(error).__name__}: {error}"})
                continue
            told: dict[str, object] = {"id": change.id} if isinstance(change, AliasChange) else {}
            self.say(told | {"did": deed.__name__})

    def say(self, document: dict[str, object]) -> None:
        """One write of one line: a kill leaves whole lines behind."""
        with self.note.open("ab", buffering=0) as file:
            file.write(json.dumps(document).encode() + b"\n")

    def register(self) -> object:
        """A run that has ended, with a model that its gate has passed, or not."""
        name = f"run-{os.getpid()}-{self.chance.getrandbits(48):x}"
        mean = self.chance.choice((50.0, 300.0, 350.0))
        return self.shop.a_model(name, mean, env_id=self.env(), at=time.time())

    def promote(self) -> object:
        """A model to an alias, as gates allow."""
        equal = self.chance.random() < 0.5
        return self.models.promote(
            self.one().id, self.chance.choice(NAMES), allow_equal=equal, margin=20.0, episodes=10
        )

    def force(self) -> object:
        """A model to an alias, whatever gates say."""
        alias = self.chance.choice(NAMES)
        return self.models.promote(self.one().id, alias, force=True, reason="chance")

    def validate(self) -> object:
        """A model by its final report, or by one that is made now."""
        return self.models.validate(self.one().id, fresh=self.chance.random() < 0.5)

    def rollback(self) -> object:
        """An alias to whom it was before."""
        return self.models.rollback(self.chance.choice(NAMES), env=self.env())

    def unalias(self) -> object:
        """An alias to nobody."""
        return self.models.unalias(self.chance.choice(NAMES), env=self.env())

    def prune(self) -> object:
        """All but a few."""
        return self.models.prune(keep_top_n=KEPT, env=self.env())

    def remove(self) -> object:
        """A run with its directory and its models."""
        run = self.shop.get(str(self.one().run_id))
        if run.active:  # Somebody is registering it.
            raise RlctlError(f"run {run.id} is {run.state}")
        return self.verbs.remove(run.id)

    def one(self) -> ModelVersion:
        """Any model."""
        found = self.models.list(ModelQuery(env=self.env()))
        if not found:
            raise RlctlError("there is no model")
        return self.chance.choice(found)

    def env(self) -> str:
        """Any environment."""
        return self.chance.choice(ENVIRONMENTS)


def race(home: Path, location: Path | str, least: Least, *, seed: int = 0) -> Figures:
    """Let actors act for so long, kill some now and then, and hold what is left to its promises."""
    figures = Figures("PostgreSQL" if isinstance(location, str) else "SQLite", least)
    shop = Shop(home, Store(location))
    for number in range(START):
        shop.a_model(f"first-{number}", 300.0, env_id=ENVIRONMENTS[number % 2], at=time.time())
    CONTEXT.set_forkserver_preload(["tests.registry_warm"])
    notes = home / "notes"
    notes.mkdir()
    actors = [_begin(home, location, seed * 1000 + n, notes) for n in range(PROCESSES)]
    try:
        _watch(shop, location, actors, figures, seed)
    finally:
        for actor in actors:
            actor.kill()
            actor.join()
    _finish(shop, location)
    _check(shop, notes, figures)
    shop.store.close()
    return figures


def verbs(home: Path, location: Path | str) -> Verbs:
    """The verbs on runs, of which none is ever carried out."""
    return Verbs(home, FakeRunner(trains_to([])), database=location)


def _finish(shop: Shop, location: Path | str) -> None:
    """What was cut short is done again by whoever wanted it."""
    shop.models().prune()
    for run in _runs(shop):
        if not Path(run.path).is_dir():
            verbs(shop.home, location).remove(run.id)


def _live(home: Path, location: Path | str, seed: int, note: Path) -> None:
    Actor(home, location, seed, note).live()


def _begin(home: Path, location: Path | str, seed: int, notes: Path) -> BaseProcess:
    note = notes / f"{seed}-{time.monotonic_ns()}"
    actor = CONTEXT.Process(target=_live, args=(home, location, seed, note), daemon=True)
    actor.start()
    return actor


def _watch(
    shop: Shop,
    location: Path | str,
    actors: list[BaseProcess],
    figures: Figures,
    seed: int,
) -> None:
    """Look at the aliases again and again, and kill an actor now and then."""
    notes, chance = shop.home / "notes", random.Random(seed)
    while not any(note.stat().st_size for note in notes.iterdir()):
        time.sleep(LOOK_EVERY_S)
    began = time.monotonic()
    kill_at = began + chance.uniform(0.1, 0.6)
    while not _is_over(shop, figures):
        figures.seconds = time.monotonic() - began
        _look(shop)
        figures.looks += 1
        if time.monotonic() > kill_at:
            place = chance.randrange(len(actors))
            assert actors[place].is_alive(), "an actor has ended by itself"
            os.kill(int(actors[place].pid or 0), signal.SIGKILL)
            actors[place].join()
            actors[place] = _begin(shop.home, location, chance.getrandbits(32), notes)
            figures.kills += 1
            kill_at = time.monotonic() + chance.uniform(0.1, 0.6)
        time.sleep(LOOK_EVERY_S)


def _is_over(shop: Shop, figures: Figures) -> bool:
    least = figures.least
    if figures.seconds < least.seconds or figures.kills < least.kills:
        return False
    return len(Aliases(shop.store).history()) >= least.changes


def _look(shop: Shop) -> None:
    """Every alias points to what was validated or forced, and whose files are there."""
    aliases = Aliases(shop.store)
    for alias in aliases.find():
        with suppress(RlctlError):  # It has moved on, and the model is gone since.
            _look_at(shop, shop.registry.get(alias.model_id))


def _look_at(shop: Shop, model: ModelVersion) -> None:
    aliases = Aliases(shop.store)
    there = sealed.manifest_digest(Path(model.model_path)) == model.digest
    newest = {
        (change.env_id, change.alias): change
        for change in reversed(aliases.history(model_id=model.id))
        if change.model_id == model.id
    }
    for alias in aliases.find(env=model.env_id):
        if alias.model_id != model.id:
            continue
        change = newest.get((alias.env_id, alias.alias))
        # An alias that was given since is looked at the next time.
        if change is not None and change.at == alias.since:
            assert there, f"{alias} has no files"
            assert model.validated or change.forced, f"{alias} was neither validated nor forced"
            assert not model.retiring, f"{alias} is of a model that goes"


def _check(shop: Shop, notes: Path, figures: Figures) -> None:
    """What all of it must have come to."""
    aliases = Aliases(shop.store)
    history = aliases.history()[::-1]
    held = {(alias.env_id, alias.alias): alias.model_id for alias in aliases.find()}
    assert present(history) == held, "the history does not come to what there is"
    _check_chain(history)
    told = [json.loads(line) for note in notes.iterdir() for line in note.read_text().splitlines()]
    lost = {each["id"] for each in told if "id" in each} - {change.id for change in history}
    assert not lost, f"changes that were told of and are not there: {lost}"
    _look(shop)
    models = shop.models().list(ModelQuery(limit=10_000))
    ended = {run.id for run in _runs(shop) if run.state is State.SUCCEEDED}
    rows = {model.model_path for model in models if model.run_id in ended}
    files = {
        str(path) for run_id in ended for path in (shop.home / "runs" / run_id / "models").glob("*")
    }
    assert rows == files, f"rows and files differ: {rows ^ files}"
    faults = [fault.sentence for fault in shop.models().verify().faults]
    assert faults == [], faults
    figures.done = Counter(each["did"] for each in told if "did" in each)
    figures.refused = sum("refused" in each for each in told)
    figures.changes, figures.models = len(history), len(models)


def _check_chain(history: list[AliasChange]) -> None:
    """No update was lost: each change took the place of the one before it."""
    last: dict[tuple[str, str], int | None] = {}
    for change in history:
        key = (change.env_id, change.alias)
        assert change.previous_id == last.get(key), f"{change} did not follow {last.get(key)}"
        last[key] = change.model_id


def _runs(shop: Shop) -> list[Run]:
    page = shop.store.page(Query(limit=1000))
    runs = [*page.runs]
    while page.next is not None:
        page = shop.store.page(Query(limit=1000, after=page.next))
        runs += page.runs
    return runs

"""One fault at a random moment of a random workload, and the checker over what is left.

Everything that chance decides comes from one seed, which is in the name of the test.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from rl_orch.client import Client
from rl_orch.errors import Conflict
from rl_orch.io.checkpoints import catalog
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from tests.faults import programs
from tests.faults.checker import Figures, check
from tests.faults.lab import Lab
from tests.faults.programs import Gate
from tests.faults.watcher import Marked
from tests.faults.workload import Submitter
from tests.integration.conftest import until
from tests.postgres import Postgres

RUNS = 4
PAST_ITS_LEASE_S = (11.0, 14.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A lab at work, and the chance that decides."""

    lab: Lab
    chance: random.Random
    postgres: Postgres | None = None

    def pause(self, least_s: float = 0.0, most_s: float = 2.0) -> None:
        """Let some time pass."""
        threading.Event().wait(self.chance.uniform(least_s, most_s))

    def some(self, *, root: bool) -> Marked:
        """A root, or a program that a root has started."""
        found: list[Marked] = until(
            lambda: [p for p in self.lab.watcher.marked() if (p.role is not None) == root]
        )
        return self.chance.choice(sorted(found, key=lambda process: process.identity))

    def submitted(self, *overrides: str, gate: Gate | None = None) -> Run:
        """A further run, which may be held."""
        spec = programs.a_count(self.lab.program, *overrides, lasts_s=2.0, gate=gate)
        return self.lab.ask(lambda client: client.submit(spec, consent=True)).runs[0]

    def ended(self, run: Run) -> Run:
        """The run, once it has ended."""
        until(lambda: not self.lab.store.get(run.id).active)
        return self.lab.store.get(run.id)


Fault = Callable[[Scene], None]


def service_killed(scene: Scene) -> None:
    """`kill -9` of the service."""
    scene.pause()
    scene.lab.service.kill()
    scene.pause(most_s=1.0)
    scene.lab.service.start()


def service_killed_as_it_starts(scene: Scene) -> None:
    """`kill -9` of the service before it is ready, some times in a row."""
    for _ in range(3):
        scene.lab.service.kill()
        scene.lab.service.begin()
        scene.pause(0.5, 2.5)
    scene.lab.service.kill()
    scene.lab.service.start()


def root_killed(scene: Scene) -> None:
    """`kill -9` of roots."""
    for _ in range(2):
        scene.pause(most_s=1.0)
        _send(scene.some(root=True), signal.SIGKILL)


def root_killed_without_a_service(scene: Scene) -> None:
    """`kill -9` of a root while nobody watches."""
    scene.pause()
    root = scene.some(root=True)
    scene.lab.service.kill()
    _send(root, signal.SIGKILL)
    scene.lab.service.start()


def program_killed(scene: Scene) -> None:
    """`kill -9` of the programs under the roots."""
    for _ in range(2):
        scene.pause(most_s=1.0)
        _send(scene.some(root=False), signal.SIGKILL)


def root_halted(scene: Scene) -> None:
    """A root is halted for longer than its silence may last, and goes on."""
    run = scene.submitted("runner.silence_s=2")
    until(lambda: RunDir.of(run).lock_holder() is not None)
    holder = RunDir.of(run).lock_holder()
    with suppress(ProcessLookupError, TypeError):
        os.kill(pids.pid_of(str(holder)), signal.SIGSTOP)
        scene.pause(2.5, 4.0)
        os.kill(pids.pid_of(str(holder)), signal.SIGCONT)


def checkpoint_damaged(scene: Scene) -> None:
    """The newest checkpoint is damaged as its root dies: the one before it is used."""
    gate = Gate(scene.lab.folder / "damaged", step=9)
    run = scene.submitted(gate=gate)
    directory = RunDir.of(run)
    until(lambda: len(catalog.listing(directory.checkpoints)) >= 2)
    root = next(r for r in scene.lab.watcher.roots() if r.directory == directory.path)
    _send(root, signal.SIGSTOP)
    newest = max(catalog.listing(directory.checkpoints), key=lambda entry: entry.step)
    _damage(newest.path, scene.chance)
    _send(root, signal.SIGKILL)
    gate.open()
    ended = scene.ended(run)
    assert (ended.state, ended.attempt) == (State.SUCCEEDED, 2), ended.reason


def stopped_as_it_starts(scene: Scene) -> None:
    """A run is stopped at a random moment between its submission and its first steps."""
    for _ in range(2):
        run = scene.submitted()
        scene.pause(most_s=1.5)
        with suppress(Conflict):
            scene.lab.ask(partial(Client.stop, reference=run.id))
        assert scene.ended(run).state in (State.STOPPED, State.SUCCEEDED)


def resumed_twice_at_once(scene: Scene) -> None:
    """A stopped run is resumed by two at once: one of them does it, the other is told so."""
    gate = Gate(scene.lab.folder / "resumed")
    run = scene.submitted(gate=gate)
    scene.pause(most_s=1.0)
    scene.lab.ask(lambda client: client.stop(run.id))
    scene.lab.watcher.may_go_on(run.id)
    barrier = threading.Barrier(2)

    def resume() -> str:
        client = scene.lab.client()
        barrier.wait()
        try:
            return client.requeue(run.id).runs[0].state
        except Conflict:
            return "refused"

    with ThreadPoolExecutor(2) as pool:
        answers = sorted(future.result() for future in [pool.submit(resume) for _ in range(2)])
    assert answers == ["queued", "refused"], answers
    gate.open()
    assert scene.ended(run).state is State.SUCCEEDED


def one_of_two_services_killed(scene: Scene) -> None:
    """Of two services that share a database, one is killed."""
    scene.pause()
    scene.chance.choice(scene.lab.services).kill()


def one_of_two_services_halted(scene: Scene) -> None:
    """Of two services that share a database, one is halted past its lease, and goes on."""
    scene.pause()
    halted = scene.chance.choice(scene.lab.services)
    halted.halt()
    scene.pause(*PAST_ITS_LEASE_S)
    halted.go_on()


def postgres_restarted(scene: Scene) -> None:
    """PostgreSQL crashes and comes back."""
    assert scene.postgres is not None
    for _ in range(2):
        scene.pause()
        scene.postgres.stop(immediate=True)
        scene.pause()
        scene.postgres.start()


def postgres_halted(scene: Scene) -> None:
    """PostgreSQL answers nobody for a while."""
    assert scene.postgres is not None
    scene.pause()
    first = (scene.postgres.folder / "data" / "postmaster.pid").read_text().split()[0]
    server = psutil.Process(int(first))
    halted = [server, *server.children()]
    for process in halted:
        process.suspend()
    scene.pause(2.0, 8.0)
    for process in halted:
        process.resume()


ALONE: tuple[Fault, ...] = (
    service_killed,
    service_killed_as_it_starts,
    root_killed,
    root_killed_without_a_service,
    program_killed,
    root_halted,
    checkpoint_damaged,
    stopped_as_it_starts,
    resumed_twice_at_once,
)
TOGETHER: tuple[Fault, ...] = (one_of_two_services_killed, one_of_two_services_halted)
WITH_POSTGRES: tuple[Fault, ...] = (postgres_restarted, postgres_halted, *TOGETHER)


def play(folder: Path, seed: int, faults: tuple[Fault, ...], postgres: Postgres | None) -> Figures:
    """Choose a fault, let it happen in the middle of things, and check what is left."""
    chance = random.Random(seed)
    fault = chance.choice(faults)
    with _lab(folder, fault, postgres) as lab:
        try:
            return _played(Scene(lab, chance, postgres), fault)
        except BaseException as error:
            error.add_note(f"seed {seed}: {fault.__name__}\n{lab.service.told()}")
            raise


def _played(scene: Scene, fault: Fault) -> Figures:
    lab = scene.lab
    began = time.monotonic()
    for up in lab.services:
        up.begin()
    for up in lab.services:
        up.await_ready(began)
    lab.watcher.start()
    gate = Gate(lab.folder / "gate")
    own = random.Random(scene.chance.random())
    # One of the runs is held: whenever the fault comes, there is something that it can hit.
    held = iter([programs.a_count(lab.program, gate=gate)])
    submitter = Submitter(
        lab, lambda _: next(held, None) or programs.by_chance(lab.program, own), load=RUNS
    )
    submitter.start(at_most=RUNS + 1)
    fault(scene)
    gate.open()
    submitter.join()
    lab.await_end()
    return check(lab, submitter.acknowledged)


@contextmanager
def _lab(folder: Path, fault: Fault, postgres: Postgres | None) -> Iterator[Lab]:
    homes = 2 if fault in TOGETHER else 1
    shared = str(folder / "shared.db") if homes > 1 else None
    lab = Lab(folder, database=shared if postgres is None else postgres.database(), homes=homes)
    try:
        yield lab
    finally:
        lab.close()


def _send(process: Marked, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pids.pid_of(process.identity), number)


def _damage(checkpoint: Path, chance: random.Random) -> None:
    """Flip a byte of a file, or remove it: one of ours, or what the program has saved."""
    folders = [checkpoint, *checkpoint.parent.glob(f"files_{checkpoint.name}_*")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    file = chance.choice(sorted(files))
    if chance.random() < 0.5:
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.chmod(0o644)
    file.write_bytes(data)

"""The run directory: where each of its files is, and the lock that only one run process can hold.

A run can be understood and moved with its directory alone.
"""

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeVar

import yaml
from pydantic import BaseModel

from rl_orch.errors import BadInput, Damaged, NotFound, RlctlError, RunLocked
from rl_orch.io.files import private, regular
from rl_orch.io.files.sealed import sync_directory
from rl_orch.io.processes import pids
from rl_orch.records import Certificate, EvalReport, LetGo, Run
from rl_orch.spec.live import in_force
from rl_orch.spec.model import Spec
from rl_orch.spec.reader import MAX_BYTES, parse
from rl_orch.spec.tags import validated, validated_note
from rl_orch.spec.upgrade import upgraded

Document = TypeVar("Document", bound=BaseModel)
LOOK_EVERY_S = 0.05
NOTE = "note.txt"
LET_GO = "let_go.json"
MODEL = "model.json"
"""In a folder of `models/`: it is there once what acts of a policy was sealed."""


def replay_beside(checkpoints: Path) -> Path:
    """The folder of replay segments that a folder of checkpoints has."""
    return checkpoints.with_name("replay")


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run. Once opened it carries its spec, which is not read again."""

    path: Path
    carried_spec: Spec | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, run: Run, spec: Spec | None = None) -> "RunDir":
        """The directory of that run, with its spec where that is at hand."""
        return cls(Path(run.path), spec)

    def opened(self) -> "RunDir":
        """The directory with its spec, read and validated now unless it is carried already."""
        return RunDir(self.path, self.spec())

    @property
    def home(self) -> Path:
        """The home that the run is in, if it is in one."""
        return self.path.parent.parent

    @property
    def spec_file(self) -> Path:
        """The resolved spec."""
        return self.path / "spec.yaml"

    @property
    def manifest_file(self) -> Path:
        """The file of what the run was made from and on."""
        return self.path / "manifest.json"

    @property
    def events(self) -> Path:
        """The event file."""
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        """The file of what the run's processes printed."""
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def models(self) -> Path:
        """The folder of artefacts: what acts of each registered policy."""
        return self.path / "models"

    def policy(self, name: str) -> Path:
        """The files of a policy by the name of its checkpoint: its artefact where there is one,
        unless the name says in which of the two folders they are."""
        folder, last = Path(name).parent.name, Path(name).name
        if folder in (self.models.name, self.checkpoints.name):
            return self.path / folder / last
        sealed = self.models / last
        return sealed if os.path.lexists(sealed / MODEL) else self.checkpoints / last

    @property
    def replay(self) -> Path:
        """The folder of replay segments, which checkpoints name; made when there is one."""
        return replay_beside(self.checkpoints)

    @property
    def tensorboard(self) -> Path:
        """The folder that TensorBoard reads."""
        return self.path / "tensorboard"

    def report_file(self, name: str) -> Path:
        """The evaluation report of that name: `final`, or the step it was made at."""
        return self.path / "evals" / f"{name}.json"

    def episodes_file(self, name: str) -> Path:
        """The episodes of that evaluation, as a table."""
        return self.path / "evals" / f"{name}.parquet"

    def records_file(self, name: str) -> Path:
        """Those of its episodes that can be driven again."""
        return self.path / "evals" / f"{name}.episodes.json"

    def film_file(self, name: str) -> Path:
        """The film of that name."""
        return self.path / "videos" / f"{name}.mp4"

    def create(self, spec: Spec, manifest: dict[str, Any]) -> None:
        """Make the directory, with the spec and the manifest in it."""
        private.own_folder(self.path.parent)
        private.own_folder(self.path, exist_ok=False)
        for folder in (self.checkpoints, self.path / "evals"):
            private.inner_folder(folder)
        self.write_spec(spec)
        self.write_manifest(manifest)
        for file in (self.log, self.events):
            with open(file, "ab", opener=private.inner_file):
                pass
        for folder in (self.path, self.path.parent):
            sync_directory(folder)

    def delete(self, refuse: "Callable[[RunDir], None]" = lambda _there: None) -> None:
        """Delete the directory, or the rest of it; its name goes first, all at once. `refuse` looks
        at it then, where nobody else finds it any more; if it raises, the directory stays."""
        doomed = self.path.with_name(f".removing-{self.path.name}")
        if self.path.is_dir():
            shutil.rmtree(doomed, ignore_errors=True)
            with self.locked(note=False):
                self.path.rename(doomed)
                try:
                    refuse(RunDir(doomed))
                except BaseException:
                    doomed.rename(self.path)
                    raise
        shutil.rmtree(doomed, ignore_errors=True)

    def write_spec(self, spec: Spec) -> None:
        """Write the resolved spec."""
        write_text(self.spec_file, yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False))

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write what the run was made from and on."""
        write_text(self.manifest_file, json.dumps(manifest, indent=2) + "\n")

    def spec(self) -> Spec:
        """The resolved spec, as it was written: the one that is carried, or else read now."""
        if self.carried_spec is not None:
            return self.carried_spec
        try:
            data = regular.read(self.spec_file, MAX_BYTES)
            return Spec.model_validate(upgraded(parse(data, source=str(self.spec_file))))
        except (FileNotFoundError, NotADirectoryError):
            raise self.not_a_run() from None
        except (OSError, BadInput, ValueError) as error:
            raise Damaged(f"{str(self.spec_file)!r} cannot be read: {error}") from None

    @property
    def is_run(self) -> bool:
        """Whether there is a spec, or what has its name: to read it says which."""
        return os.path.lexists(self.spec_file)

    def not_a_run(self) -> NotFound:
        """The error that there is no run in this directory."""
        return NotFound(f"{str(self.path)!r} is not a run directory: no {self.spec_file.name}")

    def manifest(self) -> dict[str, Any]:
        """The manifest, as it was written."""
        try:
            document = json.loads(regular.read_text(self.manifest_file))
        except (OSError, ValueError, RecursionError) as error:
            raise Damaged(f"{str(self.manifest_file)!r} cannot be read: {error}") from None
        return document if isinstance(document, dict) else {}

    def write_tags(self, tags: Mapping[str, str]) -> None:
        """Keep tags that were changed since the manifest was written."""
        write_text(self.path / "tags.json", json.dumps(tags, ensure_ascii=False) + "\n")

    def tags(self) -> dict[str, str]:
        """The tags of the run; none where what is noted cannot be tags."""
        try:
            noted = json.loads(regular.read_text(self.path / "tags.json"))
        except FileNotFoundError:
            noted = self.manifest().get("tags")
        except (OSError, ValueError, RecursionError):
            noted = None
        with suppress(BadInput):
            return validated(noted if isinstance(noted, dict) else {})
        return {}

    def write_note(self, text: str) -> None:
        """Keep what people say of the run."""
        write_text(self.path / NOTE, text)

    def note(self) -> str:
        """What people say of the run; nothing, where that cannot be read."""
        try:
            return validated_note(regular.read_text(self.path / NOTE))
        except (OSError, ValueError, BadInput):
            return ""

    def changes(self) -> list[dict[str, Any]]:
        """The changes of resumed attempts and of options that were set, as the manifest notes them;
        what is no note is left."""
        noted = self.manifest().get("changes")
        notes = []
        for note in noted if isinstance(noted, list) else ():
            match note:
                case {"attempt": int(), "set": dict(pairs)} if all(map(_is_pair, pairs.values())):
                    notes.append(note)
        return notes

    def note_changes(self, notes: Sequence[Mapping[str, Any]]) -> None:
        """Keep these as all notes of changes, durably."""
        self.write_manifest(self.manifest() | {"changes": list(notes)})

    def spec_before(self, step: int | None = None) -> Spec:
        """The spec with the options that were set before a step; without one, with all."""
        notes: list[dict[str, Any]] = []
        with suppress(Damaged):  # Which is for others to tell of.
            notes = self.changes()
        return self.spec().changed(in_force(notes, step))

    def start(self) -> dict[str, Any] | None:
        """What the run began with, as its manifest says it; None for weights of its own."""
        noted = self.manifest().get("start")
        return noted if isinstance(noted, dict) else None

    def note_children(self, ids: Sequence[str]) -> None:
        """Note durably which runs are to begin with weights of this one."""
        file = self.path / "children"
        try:
            with regular.appender(file) as notes:
                notes.write("".join(f"{name}\n" for name in ids).encode())
                notes.flush()
                os.fsync(notes.fileno())
        except OSError as error:
            raise RlctlError(
                f"cannot note in {file} which runs begin with its weights: {error.strerror}",
                path=str(file),
                hint="Without that the run could be removed before they have begun.",
            ) from error

    def children(self) -> list[str]:
        """The runs that began with weights of this one; some may be gone."""
        return list(dict.fromkeys(regular.read_note(self.path / "children").split()))

    def unbegun(self) -> "list[RunDir]":
        """The runs that are to begin with weights of this one, and have saved nothing yet."""
        others = [RunDir(self.path.parent / Path(name).name) for name in self.children()]
        return [each for each in others if each.is_run and not any(each.checkpoints.glob("step_*"))]

    @property
    def loads(self) -> Path:
        """The folder of weights that the run was made to load while it went on."""
        return self.path / "loads"

    def module_path(self) -> list[str]:
        """The folders that the run's modules are searched for in; none where none can be read."""
        noted: Any = None
        with suppress(Damaged):  # Which is for others to tell of.
            noted = self.manifest().get("module_path")
        folders = noted if isinstance(noted, list) else []
        return [name for name in folders if isinstance(name, str) and os.path.isabs(name)]

    def noted_hash(self) -> str | None:
        """The config hash that the manifest gives, after all changes that it notes."""
        hashes = [note["config_hash"] for note in self.changes() if "config_hash" in note]
        config_hash = hashes[-1] if hashes else self.manifest().get("config_hash")
        return config_hash if isinstance(config_hash, str) else None

    def write_report(self, name: str, report: EvalReport) -> None:
        """Keep an evaluation report, by policy name."""
        document = {report.policy: json.loads(report.model_dump_json())}
        write_text(self.report_file(name), json.dumps(document, allow_nan=False) + "\n")

    def read_report(self, name: str, policy: str = "default") -> EvalReport | None:
        """An evaluation report, if there is one."""
        try:
            document = json.loads(regular.read_text(self.report_file(name)))
            return EvalReport.model_validate(document[policy])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise Damaged(f"{str(self.report_file(name))!r} cannot be read: {error}") from None

    def evaluation_problem(self) -> str | None:
        """The reason why the final evaluation failed, in a sentence; if it came to say so."""
        return regular.read_note(self.path / "evals" / "problem.txt").strip()[:2000] or None

    def write_certificate(self, certificate: Certificate) -> None:
        """Keep what was certified about the run."""
        write_text(self.path / "certificate.json", certificate.model_dump_json(indent=2) + "\n")

    def read_certificate(self) -> Certificate | None:
        """The certificate of the run, if it has one."""
        return _document(self.path / "certificate.json", Certificate)

    def write_let_go(self, let_go: LetGo) -> None:
        """Note durably what the run lets go of, before it does."""
        write_text(self.path / LET_GO, let_go.model_dump_json(indent=2) + "\n")

    def let_go(self) -> LetGo | None:
        """What the run has let go of, or is about to."""
        return _document(self.path / LET_GO, LetGo)

    @property
    def heartbeat(self) -> Path:
        """The file that the run process touches while it lives."""
        return self.path / "heartbeat"

    @property
    def stop_requested(self) -> bool:
        """Whether somebody has asked this run to end, in whatever way it then did."""
        return (self.path / "stop").exists()

    @property
    def kill_requested(self) -> bool:
        """Whether somebody has asked this run to end at once."""
        try:
            return (self.path / "stop").stat().st_size > 0
        except OSError:
            return False

    def request_stop(self, *, force: bool = False) -> None:
        """Note that the run was asked to end; for whoever watches over it and for later."""
        with regular.appender(self.path / "stop") as file:
            file.write(b"now\n" if force else b"")

    def forget_stop(self) -> None:
        """A new attempt begins without the request that ended the last one."""
        (self.path / "stop").unlink(missing_ok=True)

    def note_gpus(self, gpus: tuple[str, ...]) -> None:
        """Note which GPUs were set aside for the run."""
        write_text(self.path / "gpus", "\n".join(gpus))

    def gpus(self) -> tuple[str, ...]:
        """The GPUs that were set aside for the run."""
        return tuple(regular.read_note(self.path / "gpus").split())

    def pin(self, names: Collection[str]) -> None:
        """Note which checkpoints the registry needs, of models that are no artefacts yet, before a
        process that prunes is started."""
        file = self.path / "pinned"
        if names or file.exists():
            write_text(file, "".join(f"{name}\n" for name in sorted(names)))

    def pinned(self) -> set[str]:
        """The checkpoints that stay whatever training keeps: other runs are to begin with some."""
        file, wanted = self.path / "pinned", set[str]()
        for other in self.unbegun():
            with suppress(Damaged, NotFound):
                wanted.add(str((other.start() or {}).get("checkpoint")))
        try:
            return wanted.union(regular.read_text(file).split())
        except regular.NotRegular as error:  # Not none: what the registry needs would be pruned.
            raise regular.damaged(file, error) from None
        except OSError:
            return wanted

    def note_attempt(self, number: int) -> None:
        """Note durably which attempt is to begin next, before its run process is started."""
        write_text(self.path / "attempt", f"{number}\n")

    def noted_attempt(self) -> int:
        """The attempt whose turn it is; 0 where none was noted."""
        with suppress(ValueError):
            return int(regular.read_note(self.path / "attempt"))
        return 0

    def note_standby(self, attempt: int, cookie: str) -> None:
        """Note durably by which cookie a standby is known, before it begins that attempt."""
        write_text(
            self.path / pids.STANDBYS, f"{pids.noted_standbys(self.path)}{attempt} {cookie}\n"
        )

    @property
    def strays(self) -> Path:
        """The file in which subreapers note how many processes they had to kill."""
        return self.path / "strays"

    def count_strays(self) -> int:
        """The number of processes that were killed since this was last asked."""
        with suppress(OSError, ValueError):
            noted = [int(line) for line in regular.read_text(self.strays).split()]
            self.strays.unlink()
            return sum(noted)
        return 0

    def lock_holder(self) -> str | None:
        """The identity of the run process that works in this directory, if one does."""
        file = self.path / "lock"
        try:
            identity = regular.read_text(file).strip()
        except regular.NotRegular as error:
            raise regular.damaged(file, error) from None
        except (OSError, ValueError):
            return None
        return identity if pids.is_identity(identity) and pids.alive(identity) else None

    @contextmanager
    def locked(self, *, patience_s: float = 0.0, note: bool = True) -> Iterator[None]:
        """Hold the directory; the kernel lets go of it when the process dies, however it dies.

        A run process notes who it is. Whoever only looks or tidies up must not be taken for one.
        """
        deadline = time.monotonic() + patience_s
        with os.fdopen(regular.appendable(self.path / "lock"), "a+") as file:
            while not _locks(file):
                if time.monotonic() >= deadline:
                    raise RunLocked(self._in_use())
                time.sleep(LOOK_EVERY_S)
            if not note:
                yield
                return
            # A forked environment process must not keep a dead run's directory locked.
            os.register_at_fork(after_in_child=file.close)
            file.truncate(0)
            file.write(pids.identity(os.getpid()) or "")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    def _in_use(self) -> str:
        holder = self.lock_holder()
        who = f"process {pids.pid_of(holder)}" if holder else "a process that is not seen here"
        return f"run directory {str(self.path)!r} is in use by {who}"


def _locks(file: TextIO) -> bool:
    """Whether the file is ours now; its lock is nobody else's."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _document(file: Path, model: type[Document]) -> Document | None:
    """The record that a file holds, if it is there."""
    try:
        return model.model_validate_json(regular.read_text(file))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Damaged(f"{str(file)!r} cannot be read: {error}") from None


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: temporary file, fsync, rename, and fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        fd = regular.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RlctlError(
            f"cannot write {path}: {error.strerror}",
            path=str(path),
            hint="Free space on that disk or correct its permissions, then resume the run.",
        ) from error

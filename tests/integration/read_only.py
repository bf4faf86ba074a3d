"""A home on a disk that is mounted read-only: `python -m tests.integration.read_only HOME FOLDER`.

Started in a mount namespace of its own (`unshare`), so that nobody else sees the mounts and they go
with the process. Asserts; exits 0 if all held.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from rl_orch import orchestrator
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import State
from tests.integration.conftest import Shell

MOUNTED = "is mounted read-only"
DEAD = f"{pids.host()}/999999999:1/token"
"""The lease of a supervisor that has died."""


def orphaned(home: Path) -> str:
    """A run that was at work when its supervisor and its root died."""
    connected = orchestrator.connect(home)
    run = connected.create(connected.show("last").spec, lease=DEAD)
    connected.store.save(run.model_copy(update={"state": State.RUNNING, "attempt": 1}), lease=DEAD)
    return run.id


def mount(home: Path, at: Path) -> None:
    """Mount a folder read-only."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", home, at], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", at], check=True)


def said(shell: Shell, *words: str, code: int = 0) -> str:
    """What a command says, with no trace of how it is made."""
    done = shell.run(*words)
    both = done.stdout + done.stderr
    assert "Traceback" not in both, both
    assert done.returncode == code, f"{words}: {done.returncode}: {both}"
    return " ".join(both.split())


def reads(shell: Shell, run: str, orphan: str) -> None:
    """What only reads works, and tells what was last known."""
    listed = shell.run("ls", "--json")
    assert {each["id"]: each["state"] for each in json.loads(listed.stdout)["runs"]} == {
        run: "succeeded",
        orphan: "running",
    }
    assert MOUNTED in listed.stderr
    assert "as they were last known" in listed.stderr
    assert "intact" in said(shell, "show", run)
    assert shell.json("show", run)["path"] == str(shell.home / "runs" / run)
    assert shell.run("logs", run).stdout == RunDir(shell.home / "runs" / run).log.read_text()
    assert said(shell, "logs", run, "--events")
    assert "The specs are the same" in said(shell, "compare", run, run)
    models = shell.json("registry", "list")["models"]
    assert {Path(model["model_path"]).parents[3] for model in models} == {shell.home}
    assert shell.json("registry", "verify")["faults"] == []
    assert said(shell, "wait", run)
    assert "train.lr" in said(shell, "options")
    assert "no token" in said(shell, "token", "ls")
    findings = {f["name"]: f for f in shell.json("doctor", code=1)["findings"]}
    assert findings["database"]["level"] == "ok", findings
    assert "Read-only" in findings["file system"]["detail"]


def refuses(shell: Shell, run: str, orphan: str) -> None:
    """What would write says why it cannot, before it has done anything."""
    model = str(shell.json("registry", "list")["models"][0]["id"])
    for words in (
        ("up", "--port", "0"),
        ("up", "--port", "0", "--detach"),
        ("resume", orphan),
        ("rm", run, "--yes"),
        ("promote", model, "--to", "production", "--force", "--reason", "why not"),
        ("registry", "validate", model, "--fresh"),
        ("token", "create", "me"),
        ("import-run", str(shell.home / "runs" / run)),
    ):
        assert MOUNTED in said(shell, *words, code=1), words
    for words in (("launch", "--env", "CartPole-v1"), ("launch", "--env", "CartPole-v1", "-d")):
        assert MOUNTED in said(shell, *words, code=2)
    assert "Read-only file system" in said(shell, "stop", orphan, code=1)
    assert "--out" in said(shell, "eval", run, "-n", "1", code=2)


def carries_away(shell: Shell, run: str, to: Path) -> None:
    """A policy can be exported and played, its files elsewhere."""
    said(shell, "export", run, "--format", "torchscript", "--rows", "10", "--out", str(to / "p.ts"))
    assert (to / "p.ts").is_file()
    said(shell, "eval", run, "-n", "2", "--jobs", "1", "--out", str(to / "played"))
    assert (to / "played" / "evals" / "eval-1.json").is_file()
    seen = json.dumps([0.0, 0.0, 0.0, 0.0])
    assert said(shell, "infer", run, "--observation", seen)


WRITER = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode={sys.argv[2]}")
if sys.argv[3] == "dies":
    connection.execute("PRAGMA cache_size=1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE much (x)")
    connection.executemany("INSERT INTO much VALUES (?)", [("x" * 1000,)] * 2000)
    os.kill(os.getpid(), signal.SIGKILL)
connection.close()
"""
"""Leaves a database in a journal mode, and dies in the middle of a change if it is told to."""


def written(home: Path, to: Path, mode: str, how: str) -> Path:
    """A copy of a home whose database somebody has written so."""
    to.mkdir()
    shutil.copy(home / "rlctl.db", to)
    subprocess.run([sys.executable, "-c", WRITER, to / "rlctl.db", mode, how], check=False)
    return to


def journals(home: Path, folder: Path, run: str) -> None:
    """A database with a log of writes can be read where that is safe, or says what is left."""
    closed = written(home, folder / "closed", "WAL", "ends")
    hot = written(home, folder / "hot", "DELETE", "dies")
    assert (hot / "rlctl.db-journal").stat().st_size > 0
    for each in (closed, hot):
        mount(each, each)
    assert run in said(Shell(closed, folder), "ls")
    assert "rlctl.db-journal' is left of a writer" in said(Shell(hot, folder), "ls", code=1)


def main(home: Path, folder: Path) -> None:
    """Look at a home in its own place, mounted read-only, and then in another one."""
    run, orphan = orchestrator.connect(home).get("last").id, orphaned(home)
    elsewhere = folder / "an older copy"
    mount(home, elsewhere)
    mount(home, home)
    for place in (home, elsewhere):
        shell = Shell(place, folder)
        reads(shell, run, orphan)
    refuses(Shell(home, folder), run, orphan)
    carries_away(Shell(elsewhere, folder), run, folder)
    journals(home, folder, run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

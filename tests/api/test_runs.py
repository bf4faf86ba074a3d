"""Runs over HTTP: found, listed, looked at, stopped, resumed and removed."""

import contextlib
import itertools
import select
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from rl_orch.api.routes import runs
from rl_orch.api.routes.runs import LONGEST_HISTORY, spread
from rl_orch.errors import BadInput, Conflict
from rl_orch.io.metrics.decimate import LEAST_POINTS
from rl_orch.io.run import command_socket
from rl_orch.io.run.command_socket import Request
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind, Run, RunView, State
from rl_orch.testing import a_spec
from tests.api.conftest import OWNER, OWNER_LINE, Api
from tests.waiting import PATIENCE_S


@pytest.fixture
def ended(api: Api) -> Run:
    """A run that has been carried out."""
    return api.carried_out(a_spec("name=done"))


def test_a_run_is_found_by_every_name_that_it_has(api: Api, ended: Run) -> None:
    client = api.client()
    for reference in (ended.id, ended.id[:-1], "done", "last"):
        assert Run.model_validate(client.get(f"/runs/{reference}").json()) == ended
    assert client.get("/runs/nobody").status_code == 404


def test_a_view_holds_everything_that_belongs_to_a_run(api: Api, ended: Run) -> None:
    view = RunView.model_validate(api.client().get(f"/runs/{ended.id}/view").json())
    assert view == api.orchestrator.show(ended.id)
    assert view.report is not None
    listed = api.client().get(f"/runs/{ended.id}/checkpoints").json()
    (checkpoint,) = listed["checkpoints"]
    assert (checkpoint["name"], checkpoint["intact"]) == ("step_000000000100", True)


def test_pages_follow_each_other_in_the_order_that_was_asked_for(api: Api) -> None:
    ids = [api.orchestrator.submit(a_spec(f"name=r{n}")).runs[0].id for n in range(5)]
    client, parameters = api.client(), {"limit": "2", "sort": "name"}
    pages = [client.get("/runs", params=parameters).json()]
    while (cursor := pages[-1]["next"]) is not None:
        pages.append(client.get("/runs", params={**parameters, "after": cursor}).json())
    assert [[run["id"] for run in page["runs"]] for page in pages] == [ids[:2], ids[2:4], ids[4:]]
    assert client.get("/runs", params={"after": "nonsense"}).status_code == 400
    assert client.get("/runs", params={"sort": "colour"}).status_code == 400


def test_filters_combine(api: Api, ended: Run) -> None:
    api.orchestrator.submit(a_spec("name=waiting", "schedule.queue=night"))
    client = api.client()

    def names(**parameters: str | list[str]) -> list[str]:
        runs = client.get("/runs", params=parameters).json()["runs"]
        return sorted(run["name"] for run in runs)

    assert names() == ["done", "waiting"]
    assert names(state="queued") == ["waiting"]
    assert names(state=["queued", "succeeded"]) == ["done", "waiting"]
    assert names(queue="night", env="CartPole-v1", algo="ppo") == ["waiting"]
    assert names(name="done", state="queued") == []


def test_rows_fold_groups(api: Api, ended: Run) -> None:
    group = api.orchestrator.submit(a_spec("name=many", "seeds=3")).group
    assert group is not None
    rows = api.client().get("/rows").json()["rows"]
    assert [(row["group"] or {}).get("id") for row in rows] == [group.id, None]
    assert [len(row["runs"]) for row in rows] == [3, 1]
    assert api.client().get(f"/groups/{ended.id}").status_code == 404


def test_a_queued_run_is_stopped_and_resumed_by_asking(api: Api) -> None:
    client = api.client()
    (run,) = api.orchestrator.submit(a_spec()).runs
    stopped = client.post(f"/runs/{run.id}/stop", json={"force": False})
    assert stopped.status_code == 202
    assert api.orchestrator.get(run.id).state is State.STOPPED
    again = client.post(f"/runs/{run.id}/stop")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    resumed = client.post(f"/runs/{run.id}/resume", json={"overrides": ["eval.episodes=3"]})
    assert resumed.status_code == 202
    assert resumed.json()["runs"][0]["state"] == "queued"


def test_a_finished_run_is_not_resumed_but_can_be_removed(api: Api, ended: Run) -> None:
    client = api.client()
    refused = client.post(f"/runs/{ended.id}/resume")
    assert refused.status_code == 409
    assert client.delete(f"/runs/{ended.id}").json()["id"] == ended.id
    assert client.get(f"/runs/{ended.id}").status_code == 404
    assert not Path(ended.path).exists()


def test_a_command_for_a_run_that_is_not_at_work_is_refused(api: Api, ended: Run) -> None:
    client = api.client()
    late = client.post(f"/runs/{ended.id}/command", json={"name": "checkpoint"})
    assert late.status_code == 409
    unknown = client.post(f"/runs/{ended.id}/command", json={"name": "explode"})
    assert unknown.status_code == 400
    assert "no command 'explode'" in unknown.json()["detail"]


ODD_ARGUMENTS: dict[str, Any] = {
    "command": "stop", "run_dir": "/", "timeout_s": 1e9, "name": "x", "self": 1, "arguments": {},
}  # fmt: skip


def test_a_command_reaches_a_run_at_work_with_whatever_arguments(api: Api) -> None:
    asked: list[Request] = []

    def handle(request: Request) -> dict[str, Any]:
        asked.append(request)
        return {"step": 7}

    with api.at_work(a_spec(), handle) as run:
        client, path = api.client(), f"/runs/{run.id}/command"
        plain = client.post(path, json={"name": "checkpoint"})
        assert (plain.status_code, plain.json()) == (200, {"ok": True, "step": 7})
        for name in command_socket.COMMANDS:
            odd = client.post(path, json={"name": name, "arguments": ODD_ARGUMENTS})
            assert odd.status_code < 500, name
            assert odd.status_code != 200 or asked[-1].command == name
        large = {"name": "set", "arguments": {"a": "x" * 100_000}}
        assert client.post(path, json=large).status_code == 400
        assert client.post(f"/runs/{run.id}/stop").status_code == 202
        assert RunDir.of(run).stop_requested


def test_a_command_that_a_run_refuses_is_an_error(api: Api) -> None:
    def handle(request: Request) -> dict[str, Any]:
        raise (Conflict if request.command == "pause" else BadInput)("no", path="train.lr")

    with api.at_work(a_spec(), handle) as run:
        client, path = api.client(), f"/runs/{run.id}/command"
        for name, status in (("pause", 409), ("set", 400)):
            refused = client.post(path, json={"name": name})
            assert (refused.status_code, refused.json()["path"]) == (status, "train.lr")
        for source in ({}, {"source": 5}, {"source": " "}):
            refused = client.post(path, json={"name": "load", "arguments": source})
            assert (refused.status_code, refused.json()["path"]) == (400, "arguments.source")


def test_a_run_that_was_halted_keeps_only_those_waiting_who_send_it_commands(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(command_socket, "send", partial(command_socket.send, timeout_s=PATIENCE_S))

    def handle(_: Request) -> dict[str, Any]:
        go_on.wait()
        return {}

    with api.served() as server, contextlib.ExitStack() as stack:
        run = stack.enter_context(api.at_work(a_spec(), handle))
        stack.callback(go_on.set)
        body = b'{"name": "checkpoint"}'
        head = (
            f"POST /runs/{run.id}/command HTTP/1.1\r\nHost: localhost:{server.address[1]}\r\n"
            f"{OWNER_LINE}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        waiting: list[socket.socket] = []
        for _ in range(60):
            client = stack.enter_context(socket.create_connection(server.address))
            client.sendall(head.encode() + body)
            waiting.append(client)
        for path in ("/ready", "/runs", f"/runs/{run.id}", f"/runs/{run.id}/log"):
            answer = httpx.get(f"{server.url}{path}", headers=OWNER, timeout=PATIENCE_S)
            assert answer.status_code == 200
        stopped = httpx.post(f"{server.url}/runs/{run.id}/stop", headers=OWNER, timeout=PATIENCE_S)
        assert stopped.status_code == 202
        assert select.select(waiting, [], [], 0)[0] == [], "a command was answered before"


def test_a_history_of_very_many_episodes_is_thinned_evenly() -> None:
    kept = spread(1_000_003)
    assert len(kept) == LONGEST_HISTORY
    assert (kept[0], kept[-1]) == (0, 1_000_002)
    gaps = {after - before for before, after in itertools.pairwise(kept)}
    assert gaps == {50, 51} or gaps == {50}
    assert spread(LONGEST_HISTORY) == list(range(LONGEST_HISTORY))
    assert len(set(spread(LONGEST_HISTORY + 1))) == LONGEST_HISTORY
    assert spread(1) == [0]
    assert spread(0) == []


def test_a_history_says_whether_it_was_thinned(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = api.orchestrator.submit(a_spec()).runs
    with EventWriter(RunDir.of(run).events, run=run.id, attempt=1) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        for step in range(7):
            tags = {"length": 5, "env": 0}
            writer.emit(EventKind.EPISODE, "charts/episodic_return", 1.0, step=step, tags=tags)
    url = f"/runs/{run.id}/history"
    assert api.client().get(url).json()["thinned"] is False
    monkeypatch.setattr(runs, "LONGEST_HISTORY", 4)
    found = api.client().get(url).json()
    assert [episode["step"] for episode in found["episodes"]] == [0, 2, 4, 6]
    assert found["thinned"] is True


def test_events_come_from_an_offset_on(api: Api, ended: Run) -> None:
    client = api.client()
    whole = client.get(f"/runs/{ended.id}/events").json()
    first = client.get(f"/runs/{ended.id}/events", params={"count": 1}).json()
    rest = client.get(f"/runs/{ended.id}/events", params={"offset": first["offset"]}).json()
    assert [*first["events"], *rest["events"]] == whole["events"]
    assert rest["offset"] == whole["offset"] == RunDir.of(ended).events.stat().st_size
    assert client.get(f"/runs/{ended.id}/events?offset=-1").status_code == 400


def test_a_log_comes_without_terminal_escapes(api: Api, ended: Run) -> None:
    RunDir.of(ended).log.write_bytes(b"plain\n\x1b[31mred\x1b[0m \x07bell\n\xff odd\n<b>html</b>\n")
    part = api.client().get(f"/runs/{ended.id}/log").json()
    assert part["text"] == "plain\nred bell\n\ufffd odd\n<b>html</b>\n"
    assert part["offset"] == RunDir.of(ended).log.stat().st_size
    later = api.client().get(f"/runs/{ended.id}/log", params={"offset": 6}).json()
    assert later["text"].startswith("red")


def test_a_history_keeps_numbers_that_are_not_finite(api: Api) -> None:
    (run,) = api.orchestrator.submit(a_spec()).runs
    with EventWriter(RunDir.of(run).events, run=run.id, attempt=1) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        tags = {"length": 5, "env": 0}
        for value in (1.5, float("nan"), float("-inf")):
            writer.emit(EventKind.EPISODE, "charts/episodic_return", value, step=8, tags=tags)
    episodes = api.client().get(f"/runs/{run.id}/history").json()["episodes"]
    assert [episode["ret"] for episode in episodes] == [1.5, "NaN", "-Infinity"]


def test_metrics_are_thinned_and_keep_their_peaks(api: Api) -> None:
    (run,) = api.orchestrator.submit(a_spec()).runs
    with EventWriter(RunDir.of(run).events, run=run.id, attempt=1) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        for step in range(1000):
            loss = 99.0 if step == 777 else 1.0
            writer.emit(EventKind.METRIC, "losses/value_loss", loss, step=step)
            writer.emit(EventKind.METRIC, "losses/entropy", 0.5, step=step)
    client = api.client()
    path = f"/runs/{run.id}/metrics"
    (series,) = client.get(path, params={"key": "losses/value_loss", "points": 50}).json()["series"]
    assert (series["key"], series["count"]) == ("losses/value_loss", 1000)
    assert len(series["steps"]) == len(series["values"]) <= 50
    assert max(series["values"]) == 99.0
    window = client.get(path, params={"from": 10, "to": 19, "key": "losses/entropy"}).json()
    assert window["series"][0]["steps"] == list(range(10, 20))
    assert len(client.get(path).json()["series"]) == 2
    recent = client.get(f"{path}/recent", params={"count": 2}).json()["metrics"]
    assert [(row["key"], row["step"]) for row in recent] == [
        ("losses/value_loss", 999),
        ("losses/entropy", 999),
    ]


def test_as_few_points_as_can_be_thinned_to_can_be_asked_for(api: Api, ended: Run) -> None:
    client, path = api.client(), f"/runs/{ended.id}/metrics"
    assert client.get(path, params={"points": LEAST_POINTS}).status_code == 200
    assert client.get(path, params={"points": LEAST_POINTS - 1}).status_code == 400


def test_a_run_whose_directory_is_gone_says_so(api: Api, ended: Run) -> None:
    Path(ended.path).rename(Path(ended.path).with_name("moved"))
    client = api.client()
    for part in ("view", "events", "log", "metrics", "artifacts", "events/stream"):
        answer = client.get(f"/runs/{ended.id}/{part}")
        assert answer.status_code == 404, part
        assert "is gone" in answer.json()["detail"]


def test_an_empty_home_has_no_runs_and_is_no_error(api: Api) -> None:
    client = api.client()
    assert client.get("/runs").json() == {"runs": [], "next": None}
    assert client.get("/rows").json() == {"rows": [], "next": None}
    assert client.get("/groups/x").status_code == 404

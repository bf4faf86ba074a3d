"""Experiments over HTTP: checked, submitted once, and programs only with consent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import BadInput, Warn, unheard
from rl_orch.orchestrator import to_spec
from rl_orch.records import State, Submission
from rl_orch.spec.model import Spec
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.api.conftest import OWN, Api

CARTPOLE: dict[str, Any] = {"env": {"id": "CartPole-v1"}}
PROGRAM: dict[str, Any] = {
    **CARTPOLE,
    "runner": {"name": "external", "command": ["python", "train.py", "; rm -rf /"]},
}


class Scheduler:
    """A scheduler that notes that it was woken."""

    def __init__(self, *, ready: bool = True) -> None:
        self.ready = ready
        self.woken = 0

    def status(self) -> dict[str, Any]:
        return {"ready": self.ready, "runs": 3}

    def wake(self) -> None:
        self.woken += 1


def test_a_spec_is_queued_durably_and_the_scheduler_is_woken(api: Api) -> None:
    scheduler = Scheduler()
    client = api.client(service=scheduler)
    answer = client.post("/experiments", json={"spec": CARTPOLE, "overrides": ["env.seed=7"]})
    assert answer.status_code == 201
    submission = Submission.model_validate(answer.json())
    (run,) = submission.runs
    assert (run.state, run.seed, submission.repeated) == (State.QUEUED, 7, False)
    assert api.orchestrator.store.get(run.id) == run.model_copy(update={"reason": ""})
    assert scheduler.woken == 1


def test_seeds_make_a_group(api: Api) -> None:
    answer = api.client().post("/experiments", json={"spec": {**CARTPOLE, "seeds": 3}})
    submission = Submission.model_validate(answer.json())
    assert submission.group is not None
    assert [run.seed for run in submission.runs] == list(submission.group.seeds)
    found = api.client().get(f"/groups/{submission.group.id}").json()
    assert [run["id"] for run in found["runs"]] == [run.id for run in submission.runs]


def test_the_same_request_with_the_same_key_makes_one_run(api: Api) -> None:
    client, key = api.client(), {"Idempotency-Key": "once"}
    first = client.post("/experiments", json={"spec": CARTPOLE}, headers=key)
    second = client.post("/experiments", json={"spec": CARTPOLE}, headers=key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["repeated"] is True
    assert second.json()["runs"] == first.json()["runs"]
    assert len(client.get("/runs").json()["runs"]) == 1
    other = client.post("/experiments", json={"spec": {**CARTPOLE, "seeds": 2}}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


def test_what_a_run_cannot_be_made_of_is_refused_and_leaves_nothing(api: Api) -> None:
    client = api.client()
    for spec in ({}, {"env": {"id": "CartPole-v1"}, "store": {"backend": "mlflow"}}):
        assert client.post("/experiments", json={"spec": spec}).status_code == 400
    assert client.get("/runs").json() == {"runs": [], "next": None}


def test_what_the_service_finds_in_its_own_environment_has_no_part_in_a_spec(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RL_ENV_SEED", "99")
    answer = api.client().post("/experiments", json={"spec": CARTPOLE})
    assert answer.json()["runs"][0]["seed"] == a_spec().env.seed


def test_a_program_needs_consent_and_is_shown(api: Api) -> None:
    client = api.client()
    asked = client.post("/experiments", json={"spec": PROGRAM})
    assert asked.status_code == 409
    document = asked.json()
    assert document["code"] == "consent_needed"
    assert document["command"] == ["python", "train.py", "; rm -rf /"]
    assert '["python", "train.py", "; rm -rf /"]' in document["detail"]
    assert document["preview"][0].startswith("runs ")
    agreed = client.post("/experiments", json={"spec": PROGRAM, "consent": True})
    assert agreed.status_code == 201
    assert agreed.json()["runs"][0]["runner"] == "external"


@pytest.mark.parametrize("name", ["external", "inline"])
def test_only_an_admin_chooses_how_a_run_is_executed(api: Api, name: str) -> None:
    token = Tokens(api.orchestrator.store).create("worker", "operate")[1]
    command = PROGRAM["runner"]["command"] if name == "external" else []
    spec = {**CARTPOLE, "runner": {"name": name, "command": command}}
    for path in ("/experiments", "/experiments/check"):
        answer = api.client(token).post(path, json={"spec": spec, "consent": True})
        assert answer.status_code == 403
        assert "that needs admin" in answer.json()["detail"]
        assert answer.json()["path"] == "runner.name"


MODULE: dict[str, Any] = {"env": {"id": "evilmod:Ev-v0"}}
PATHS = ("/experiments", "/experiments/check")


@pytest.mark.parametrize("path", PATHS)
def test_who_operates_names_no_module(api: Api, path: str) -> None:
    client = api.client(api.token("operate"), allowed_modules=("my_envs",))
    answer = client.post(path, json={"spec": MODULE})
    assert (answer.status_code, answer.json()["path"]) == (403, "env.id")
    assert "--allow-modules evilmod" in answer.json()["hint"]
    by_override = {"spec": CARTPOLE, "overrides": ["env.kwargs={env_id:'evilmod:Ev-v0'}"]}
    hidden = client.post(path, json=by_override)
    assert (hidden.status_code, hidden.json()["path"]) == (403, "env.kwargs.env_id")


@pytest.mark.parametrize("path", PATHS)
def test_a_module_on_the_allow_list_may_be_named_by_who_operates_and_any_by_an_admin(
    api: Api, path: str
) -> None:
    operator, admin = api.token("operate"), api.token("admin")
    listed = api.client(operator, allowed_modules=("evilmod",)).post(path, json={"spec": MODULE})
    assert listed.status_code < 300
    for token in (admin, OWN):
        assert api.client(token).post(path, json={"spec": MODULE}).status_code < 300


def test_who_operates_names_no_module_when_a_run_is_resumed(api: Api) -> None:
    (run,) = api.orchestrator.submit(a_spec()).runs
    api.orchestrator.stop(run.id)
    client = api.client(api.token("operate"))
    overrides = ["eval.metrics=['evilmod:Metric']"]
    answer = client.post(f"/runs/{run.id}/resume", json={"overrides": overrides})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_check_tells_the_hash_the_seeds_and_what_is_pending(api: Api) -> None:
    spec = {**CARTPOLE, "seeds": 2, "infer": {"model_path": "m"}}
    answer = api.client().post("/experiments/check", json={"spec": spec}).json()
    assert answer == {
        "ok": True,
        "config_hash": to_spec(CARTPOLE).config_hash,
        "settled": {"env.id": "CartPole-v1", "env.backend": "auto", "train.engine": "auto"},
        "pending": ["infer.model_path"],
        "seeds": [a_spec().env.seed, a_spec().env.seed + 1],
        "warnings": [],
        "errors": [],
    }
    assert api.client().get("/runs").json()["runs"] == []


def test_a_spec_that_is_not_wrapped_is_told_how(api: Api) -> None:
    answer = api.client().post("/experiments/check", json={"env": {"id": "CartPole-v1"}})
    assert answer.status_code == 422 or answer.status_code == 400
    assert 'wrap it in {"spec"' in answer.json()["detail"]


def test_a_check_lists_what_is_wrong(api: Api) -> None:
    wrong = {**CARTPOLE, "train": {"gamma": 2}}
    answer = api.client().post("/experiments/check", json={"spec": wrong})
    assert answer.status_code == 200
    document = answer.json()
    assert (document["ok"], document["config_hash"]) == (False, None)
    assert [error["path"] for error in document["errors"]] == ["train.gamma"]
    assert [error["code"] for error in document["errors"]] == ["spec_invalid"]


class Refusing(FakeRunner):
    """A runner that can make no environment."""

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        raise BadInput(f"no environment {spec.env.id!r}", path="env.id", hint="Another one.")


def test_a_check_asks_the_runner_as_well(api: Api) -> None:
    refusing = Refusing(trains_to([1.0]))
    other = Api(type(api.orchestrator)(api.orchestrator.home, refusing))
    document = other.client().post("/experiments/check", json={"spec": CARTPOLE}).json()
    assert document["errors"] == [
        {
            "code": "bad_input",
            "path": "env.id",
            "value": None,
            "message": "no environment 'CartPole-v1'",
            "hint": "Another one.",
        }
    ]


def test_readiness_tells_which_part_is_not_ready(api: Api) -> None:
    ready = api.client(service=Scheduler()).get("/ready")
    assert (ready.status_code, ready.json()["scheduler"]) == (200, True)
    waiting = api.client(service=Scheduler(ready=False)).get("/ready")
    assert waiting.status_code == 503
    assert waiting.json() == {"ready": False, "database": True, "scheduler": False}


def test_a_database_that_cannot_be_read_is_not_ready(api: Api) -> None:
    home = api.orchestrator.home
    home.mkdir(parents=True)
    (home / "rlctl.db").write_text("this is no database, and it is long enough to be seen as none")
    answer = api.client().get("/ready")
    assert answer.status_code == 503
    assert answer.json()["database"] is False


def test_services_and_options_are_listed(api: Api) -> None:
    client = api.client(service=Scheduler())
    assert client.get("/services").json() == {"services": [], "here": {"ready": True, "runs": 3}}
    options = {option["path"]: option for option in client.get("/options").json()["options"]}
    assert options["train.lr"]["default"] == a_spec().train.lr


@pytest.mark.parametrize("route", ["/experiments", "/experiments/check"])
def test_a_word_that_is_a_path_tells_nothing_of_the_machine(
    api: Api, route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "hidden").mkdir()
    monkeypatch.chdir(tmp_path)
    answer = api.client().post(route, json={"spec": {"start": {"from": "sub/../hiddenn"}}})
    assert answer.status_code == 404 or not answer.json()["ok"]
    assert "hidden'" not in answer.text
    assert str(tmp_path) not in answer.text

"""The password in the address of a database comes in by every door, and is written down nowhere."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_orch import orchestrator
from rl_orch.addresses import masked, masked_in
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput, Problem, RlctlError, SpecInvalid
from rl_orch.io.policies import artefacts
from rl_orch.io.run.directory import MODEL, RunDir
from rl_orch.records.jobs import ImportPolicyJob, ProfileJob, VerifyResumeJob
from rl_orch.spec import checks
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeRunner, a_spec, trains_to
from rl_orch.testing.jobs import InlineJob
from rl_orch.testing.verbs import VerbsUnderTest
from tests.api.conftest import Api
from tests.contract.test_orchestrator_contract import served
from tests.integration.conftest import until

PASSWORD = "hunter2"
ADDRESS = f"postgresql://ann:{PASSWORD}@db.example.org/rl"
COLLECTOR = f"https://ann:{PASSWORD}@otel.example.org"
ENV: dict[str, Any] = {"env": {"id": "CartPole-v1"}}
GIVEN = (f"registry.db_path='{ADDRESS}'", f"traces.endpoint='{COLLECTOR}'")
SPELLINGS: list[dict[str, Any]] = [
    {"registry": {"db_path": ADDRESS, "keep_top_n": 3}},
    {"registry": {"dbPath": ADDRESS}},
    {"registry.db_path": ADDRESS},
    {"db_path": ADDRESS},
    {"registry_db": ADDRESS},
    {"registry": {"db_path": f"{ADDRESS}?password={PASSWORD}"}},
]


@pytest.fixture
def here(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "home", FakeRunner(trains_to([4.0, 5.0] * 6)))


def written_in(folder: Path) -> Iterator[Path]:
    """The files that have the password in them, a database among them."""
    for path in folder.rglob("*"):
        if path.is_file() and PASSWORD.encode() in path.read_bytes():
            yield path


@pytest.mark.parametrize("reach", [nullcontext, served], ids=["in process", "over HTTP"])
def test_runs_are_made_from_it_and_do_not_have_it(
    reach: Callable[[Orchestrator], AbstractContextManager[VerbsUnderTest]], here: Orchestrator
) -> None:
    spec, group = a_spec(*GIVEN), a_spec(*GIVEN, "seeds=2")
    trained = here.launch(spec).run
    here.launch_group(group)
    further = a_spec(*GIVEN, f"start.from={trained.id}")
    with reach(here) as verbs:
        for asked in (spec, group, further):
            verbs.check(asked)
            verbs.submit(asked, key=f"{asked.seeds}-{asked.start.source}")
        (waiting,) = verbs.submit(spec).runs
        verbs.stop(waiting.id)
        verbs.requeue(waiting.id, overrides=["train.total_timesteps=200000"])
        verbs.stop(waiting.id)
        with pytest.raises(BadInput) as refused:
            verbs.requeue(waiting.id, overrides=list(GIVEN))
        shown = [verbs.show(run.id).model_dump_json() for run in verbs.ls().runs]
        shown += [model.model_dump_json() for model in verbs.models.list()]
    assert len(shown) >= 9
    assert PASSWORD not in "".join([*shown, str(refused.value.document())])
    assert [*written_in(here.home)] == []


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda each: next(iter(each)))
def test_documents_that_have_it_are_taken_and_kept_without_it(
    spelling: dict[str, Any], here: Orchestrator
) -> None:
    document, told = ENV | spelling, []
    assert resolve(document).registry.db_path in (ADDRESS, f"{ADDRESS}?password={PASSWORD}")
    with Api(here).client() as http:
        for body in ({"spec": document}, {"spec": ENV, "overrides": list(GIVEN)}):
            for path in ("/experiments/check", "/experiments"):
                told.append(http.post(path, json=body))
        for kind in ("profile", "verify_resume", "doctor"):
            told.append(http.post("/jobs", json={"kind": kind, "arguments": {"spec": document}}))
        assert [answer.status_code // 100 for answer in told] == [2] * len(told)
        jobs = [job["id"] for job in http.get("/jobs").json()["jobs"]]
        until(lambda: all(http.get(f"/jobs/{job}").json()["ended_at"] for job in jobs))
        told += [http.get(f"/jobs/{job}") for job in jobs]
    assert len(jobs) == 3
    assert PASSWORD not in "".join(answer.text for answer in told)
    assert [*written_in(here.home)] == []


def test_overrides_of_jobs_are_kept_without_it(here: Orchestrator) -> None:
    queue = JobQueue(here, partial(InlineJob, here), at_once=0)
    kept = "train.lr=1e-3"
    policy = ImportPolicyJob(file="upload:x", overrides=(*GIVEN[:1], kept))
    steps = tuple((10, text) for text in (*GIVEN[:1], kept))
    trial = VerifyResumeJob(spec=ENV, settings=steps)
    first, second = (queue.submit(each, who="ann")[0] for each in (policy, trial))
    assert (first.arguments["overrides"], second.arguments["settings"]) == ([kept], [[10, kept]])
    assert [*written_in(here.home)] == []


def test_a_path_stays_and_so_does_the_address_in_memory() -> None:
    """Whoever launches finds the database that was named."""
    local, far = a_spec("registry.db_path=./mine.db"), a_spec(*GIVEN)
    assert local.model_dump(mode="json")["registry"]["db_path"] == "./mine.db"
    asked = ProfileJob(spec=ENV | {"registry": {"db_path": "./mine.db"}})
    assert asked.model_dump(mode="json")["spec"]["registry"] == {"db_path": "./mine.db"}
    assert orchestrator.to_spec(far).registry.db_path == far.registry.db_path == ADDRESS
    assert [each.registry.db_path for each in a_spec(*GIVEN, "seeds=2").members] == [ADDRESS] * 2
    assert PASSWORD not in repr(far.registry)
    assert far.config_hash == a_spec().config_hash


def test_what_earlier_versions_wrote_is_shown_and_sealed_without_it(here: Orchestrator) -> None:
    run = here.launch(a_spec()).run
    directory, (model,) = RunDir.of(run), here.models.list()
    document = yaml.safe_load(directory.spec_file.read_text())
    document["registry"]["db_path"] = ADDRESS
    directory.spec_file.write_text(yaml.safe_dump(document))
    with closing(sqlite3.connect(str(here.location))) as database, database:
        database.execute("UPDATE models SET hyperparams = ?", [json.dumps(document)])
    assert PASSWORD not in here.show(run.id).model_dump_json()
    assert PASSWORD not in here.models.get(str(model.id)).model_dump_json()
    assert here.requeue(run.id, overrides=["train.total_timesteps=200000"], approximate=True).runs
    assert [*written_in(Path(run.path))] == []
    path = Path(model.model_path)
    old = json.loads((path / MODEL).read_text()) | {"spec": document}
    assert artefacts._spec(artefacts.ArtefactDocument.model_validate(old)).registry.db_path is None


def refused(document: dict[str, Any]) -> RlctlError:
    with pytest.raises(SpecInvalid) as raised:
        resolve(ENV | document)
    return raised.value


@pytest.mark.parametrize(
    "document",
    [
        {"registry": {"db_path": f"{ADDRESS}\n"}},
        {"registry": {"db_path": f"postgresql://{'a' * 60}:{PASSWORD}@db/rl"}, "db_path": "x"},
        {"regstry": {"db_path": ADDRESS}},
        {"registry": {"path": [ADDRESS]}},
        {"store": {"tracking_uri": [COLLECTOR]}},
    ],
    ids=["on two lines", "twice", "no group", "no option", "of another option"],
)
def test_no_refusal_repeats_it(document: dict[str, Any]) -> None:
    told = refused(document)
    assert PASSWORD not in f"{told.document()} {told.findings()} {told}"


def test_what_waits_for_a_part_is_refused_without_it() -> None:
    spec = Spec.model_validate(ENV | {"store": {"tracking_uri": COLLECTOR}})
    with pytest.raises(BadInput) as raised:
        checks.refuse_pending(spec)
    assert "ann:***@otel" in raised.value.message


def test_errors_hide_the_passwords_of_addresses_and_nothing_else() -> None:
    error = RlctlError(f"no {ADDRESS!r}", hint=f"Not {COLLECTOR}/x, but a@b:c@d.")
    assert error.message == "no 'postgresql://ann:***@db.example.org/rl'"
    assert error.hint == "Not https://ann:***@otel.example.org/x, but a@b:c@d."
    assert Problem("x", [{"y": COLLECTOR}], "z").value == [{"y": masked(COLLECTOR)}]
    for plain in (
        "http://127.0.0.1:7311/models/best@CartPole-v1",
        "postgresql://user:password@host:5432/name",
        "postgresql://db:5432/rl is not the place of ann@example.org",
        "/a path/x@y:z.db",
    ):
        assert masked(plain) == plain
    assert masked("postgresql://ann:hun/t@er2@db/rl") == "postgresql://ann:***@db/rl"
    deep: Any = COLLECTOR
    for _ in range(100):
        deep = [deep]
    assert PASSWORD not in str(masked_in(deep))

"""Code that a request names: who operates is refused by every route, and nothing is imported."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_orch import plugins
from rl_orch.core.jobs import kinds
from rl_orch.errors import BadInput, Damaged
from rl_orch.io.files import sealed
from rl_orch.io.policies import bundles
from rl_orch.records.jobs import JOBS, JobRequest, request_of
from rl_orch.spec import runner_traits
from rl_orch.spec.named_plugins import named_plugins
from rl_orch.spec.reader import MAX_BYTES
from rl_orch.spec.resolve import resolve
from tests.api.conftest import Api

MODULE = "named_by_a_caller"
NAMED = f"{MODULE}:Thing"
CARTPOLE: dict[str, Any] = {"env": {"id": "CartPole-v1"}}
OPTIONS: dict[str, dict[str, Any]] = {
    "agent.algorithm": {**CARTPOLE, "agent": {"algorithm": NAMED}},
    "env.backend": {"env": {"id": "CartPole-v1", "backend": NAMED}},
    "env.id": {"env": {"id": f"{MODULE}:Thing-v0"}},
    "env.wrappers": {"env": {"id": "CartPole-v1", "wrappers": [NAMED]}},
    "eval.metrics": {**CARTPOLE, "eval": {"metrics": [NAMED]}},
    "feature.encoder": {**CARTPOLE, "feature": {"encoder": NAMED}},
    "rollout.collector": {**CARTPOLE, "rollout": {"collector": NAMED}},
    "runner.name": {**CARTPOLE, "runner": {"name": NAMED}},
    "store.trackers": {**CARTPOLE, "store": {"trackers": [NAMED]}},
    "train.engine": {**CARTPOLE, "train": {"engine": NAMED}},
    "train.observers": {**CARTPOLE, "train": {"observers": [NAMED]}},
}
OF_SPECS = ("doctor", "profile", "verify_resume")


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that this process would find, and has not imported by the end."""
    (tmp_path / f"{MODULE}.py").write_text("class Thing: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        yield
        assert MODULE not in sys.modules
    finally:
        sys.modules.pop(MODULE, None)


def requests(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in ("/experiments", "/experiments/check"):
        yield path, {"spec": spec}
    for kind in OF_SPECS:
        yield "/jobs", {"kind": kind, "arguments": {"spec": spec}}


@pytest.mark.parametrize("option", OPTIONS)
def test_who_operates_has_nothing_imported_by_an_option_of_a_spec(api: Api, option: str) -> None:
    client = api.client(api.token("operate"))
    for path, body in requests(OPTIONS[option]):
        assert client.post(path, json=body).status_code == 403, path


def test_who_operates_has_no_video_written_by_a_wrapper(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "anywhere"
    env = {
        "id": "CartPole-v1",
        "kwargs": {"render_mode": "rgb_array"},
        "wrappers": [{"name": "RecordVideo", "video_folder": str(folder)}],
    }
    client = api.client(api.token("operate"), allowed_modules=("gymnasium",))
    for path, body in requests({"env": env}):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["path"]) == (403, "env.wrappers.0"), path
    assert not folder.exists()


def test_the_options_above_are_all_that_name_plugins() -> None:
    spec = resolve(CARTPOLE)
    named = {each.path for each in named_plugins(spec)} | {"env.id", "env.wrappers", "runner.name"}
    assert named | {"eval.metrics", "train.observers", "store.trackers"} == set(OPTIONS)
    assert len(plugins.KINDS) == len(OPTIONS) - 2


TEXT = {"evaluate": ("env",), "promote": ("env", "to", "reason"), "infer": ("env", "observation"),
        "film": ("episode", "of"), "import_policy": ("name",)}  # fmt: skip
"""Fields of jobs that may hold text, and for which nothing is ever imported or looked at."""

OWNERS = dict.fromkeys(OF_SPECS, ("module_path",))
"""Fields that only the service's own user may fill, as `test_jobs.py` holds."""


@pytest.mark.parametrize("kind", JOBS)
def test_every_field_of_a_job_that_may_hold_text_says_what_it_names(kind: str) -> None:
    asked = JOBS[kind]
    said = {*asked.policies, *asked.files, *asked.code, *asked.local, "out"}
    said |= {*TEXT.get(kind, ()), *OWNERS.get(kind, ())}
    assert may_hold_text(asked) - said == set()
    assert said <= set(asked.model_fields)


def may_hold_text(asked: type[JobRequest[Any]]) -> set[str]:
    def holds(schema: dict[str, Any]) -> bool:
        inner = [*schema.get("anyOf", ()), *schema.get("prefixItems", ())]
        inner += [schema["items"]] if isinstance(schema.get("items"), dict) else []
        plain = schema.get("type") in ("integer", "number", "boolean", "null", "array")
        return any(map(holds, inner)) or not (inner or plain or "enum" in schema)

    return {name for name, one in asked.model_json_schema()["properties"].items() if holds(one)}


NAMING: dict[str, tuple[str, dict[str, Any]]] = {
    "metrics": ("evaluate", {"policy": "last", "metrics": [NAMED]}),
    "settings": (
        "verify_resume", {"spec": CARTPOLE, "settings": [[1, f"env.wrappers=[{NAMED}]"]]}
    ),
    "env": ("import_policy", {"file": "x", "env": f"{MODULE}:Thing-v0"}),
    "algorithm": ("import_policy", {"file": "x", "algorithm": NAMED}),
    "overrides": ("import_policy", {"file": "x", "overrides": [f"agent.algorithm={NAMED}"]}),
}  # fmt: skip


@pytest.mark.parametrize("field", NAMING)
def test_the_code_that_a_field_of_a_job_names_is_known(field: str, tmp_path: Path) -> None:
    kind, arguments = NAMING[field]
    asked = request_of(kind, arguments)
    spec = kinds.spec_of(asked) if "spec" in asked.code else None
    (named,) = {one.module for one in kinds.named_code(tmp_path, asked, spec)}
    assert named == MODULE


def test_every_field_of_a_job_that_names_code_is_tried_above() -> None:
    named = {name for asked in JOBS.values() for name in asked.code}
    assert named == {*NAMING, "spec"}


def sent_bundle(home: Path, spec: bytes) -> str:
    """An upload like a bundle, whose weights nobody could read."""
    path = home / "uploads" / ("a" * 24) / "content" / "bundle"
    files = dict.fromkeys(bundles.NEEDED, b"x") | {bundles.SPEC: spec}
    sealed.write(path, files, noun=bundles.NOUN)
    os.truncate(path / bundles.WEIGHTS, bundles.MOST_BYTES + 1)
    return f"upload:{'a' * 24}"


def test_of_a_bundle_that_was_sent_the_spec_alone_is_read(tmp_path: Path) -> None:
    word = sent_bundle(tmp_path, json.dumps(OPTIONS["env.id"]).encode())
    asked = request_of("evaluate", {"policy": word})
    (named,) = {one.module for one in kinds.named_code(tmp_path, asked, None)}
    assert named == MODULE


def test_a_spec_that_is_too_long_is_not_read_from_a_bundle(tmp_path: Path) -> None:
    spec = json.dumps(OPTIONS["env.id"]).encode().ljust(MAX_BYTES + 1)
    asked = request_of("evaluate", {"policy": sent_bundle(tmp_path, spec)})
    with pytest.raises(Damaged, match=f"{MAX_BYTES:,} are read"):
        kinds.named_code(tmp_path, asked, None)


def test_metrics_of_the_callers_own_need_an_admin(api: Api) -> None:
    kind, arguments = NAMING["metrics"]
    body = {"kind": kind, "arguments": arguments}
    answer = api.client(api.token("operate")).post("/jobs", json=body)
    assert (answer.status_code, answer.json()["path"]) == (403, "metrics.0")
    listed = api.client(api.token("operate"), allowed_modules=(MODULE,))
    assert listed.post("/jobs", json=body).status_code != 403


def test_a_runner_has_to_be_installed_whoever_names_it() -> None:
    with pytest.raises(BadInput, match="no plugin"):
        plugins.load("runners", NAMED)
    with pytest.raises(BadInput, match="no plugin"):
        plugins.refuse_unknown("runners", [NAMED], path="runner.name")
    assert runner_traits.of(NAMED).privileged

"""Which code a spec names, wherever it stands, and what an allow-list covers."""

from typing import Any

import pytest

from rl_orch.spec import code
from rl_orch.spec.code import NamedCode
from rl_orch.spec.resolve import resolve


def named(document: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(one.path, one.module) for one in code.named_by(resolve(document))]


def test_what_is_installed_is_no_code_of_the_callers() -> None:
    spec = {"name": "a:b", "env": {"id": "CartPole-v1"}, "resources": {"device": "cuda:0"}}
    assert named(spec) == []
    assert named({"env": {"id": "ALE/Pong-v5", "kwargs": {"file": "x/y", "note": "a, b"}}}) == []


def test_the_module_of_an_environment_is_named() -> None:
    assert named({"env": {"id": "evilmod:Ev-v0"}}) == [("env.id", "evilmod")]
    assert named({"env": {"id": "my_envs.fast:Ev-v0"}}) == [("env.id", "my_envs.fast")]


def test_what_an_environment_is_told_to_make_is_named_however_deep_it_stands() -> None:
    kwargs = {"env_id": "evilmod:Ev-v0", "wrappers": [{"use": "other.mod:Wrap"}]}
    assert named({"env": {"id": "GymV26Environment-v0", "kwargs": kwargs}}) == [
        ("env.kwargs.env_id", "evilmod"),
        ("env.kwargs.wrappers.0.use", "other.mod"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "evil:2048-v0",
        "my-mod:Env",
        "1x:E",
        " evil:E-v0 ",
        "évil:É",
        "evil:0",
        "a.b:C/D-v0",
        "evil:",
        " :CartPole-v1",
        "s3://x",
        "evil: E-v0",
    ],
)
def test_whatever_could_be_imported_is_named(text: str) -> None:
    kwargs = {"env_id": text}
    assert len(named({"env": {"id": "GymV26Environment-v0", "kwargs": kwargs}})) == 1


def test_what_is_before_the_colon_of_an_id_is_named_though_it_is_blank() -> None:
    assert [one.path for one in code.named_in({"env": {"id": " :CartPole-v1"}})] == ["env.id"]
    assert [one.path for one in code.named_in({"env": {"kwargs": {"inner": {"evil:E": 1}}}})] == [
        "env.kwargs.inner.evil:E"
    ]


def test_queues_and_devices_are_text() -> None:
    spec = {"env": {"id": "CartPole-v1"}, "schedule": {"queue": "gpu:a100", "after": ["a:b"]}}
    assert named(spec) == []


@pytest.mark.parametrize(
    "override",
    ["env.id=my-mod:Env-v0", "runner.command=[sh]", "runner.name=external",
     "eval.metrics=['evil:Metric']", "env.wrappers=[timeit.timeit]",
     "env.wrappers=[{name: timeit.timeit, setup: x}]", "+env.wrappers=timeit.timeit",
     "env_wrapper=[timeit.timeit]", "env={wrappers: [timeit.timeit]}",
     "rl.env.wrappers=timeit.timeit", "command=[sh]",
     "runner={name: external, command: [sh]}", "runner=external", "runner.env.A=b",
     "env.kwargs.id=my-mod:Env-v0", "callbacks=[evil:Callback]",
     "env.wrappers=[{name: RecordVideo, video_folder: /x}]", "+env.wrappers=RecordVideo",
     "env.wrappers=[{gym.wrappers.RecordVideo: {video_folder: /x}}]"],
)  # fmt: skip
def test_overrides_name_code_as_specs_do(override: str) -> None:
    assert list(code.named_by_overrides([override]))
    harmless = ["eval.episodes=3", "name=a:b", "lr=1e-3", "env.wrappers=[3, TimeLimit]"]
    assert list(code.named_by_overrides([*harmless, "env.wrappers=null"])) == []


def test_a_runner_other_than_ours_is_code_that_no_list_of_modules_allows() -> None:
    spec = {"env": {"id": "CartPole-v1"}, "runner": {"name": "external", "command": ["/bin/sh"]}}
    (program,) = code.named_by(resolve(spec))
    assert (program.path, program.module) == ("runner.name", None)
    assert not program.is_within(["external", "None", ""])


@pytest.mark.parametrize(
    ("module", "allowed", "expected"),
    [("my_envs", ["my_envs"], True), ("my_envs.fast", ["my_envs"], True),
     ("my_envs_evil", ["my_envs"], False), ("my_envs", ["my_envs.fast"], False),
     ("os", [], False), ("os", [""], False)],
)  # fmt: skip
def test_a_module_allows_itself_and_what_is_inside_it(
    module: str, allowed: list[str], expected: bool
) -> None:
    assert NamedCode("env.id", f"{module}:X-v0", module).is_within(allowed) is expected

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
    assert (
        named({"env": {"id": "ALE/Pong-v5", "kwargs": {"file": "s3://x/y", "note": "a: b"}}}) == []
    )


def test_the_module_of_an_environment_is_named() -> None:
    assert named({"env": {"id": "evilmod:Ev-v0"}}) == [("env.id", "evilmod")]
    assert named({"env": {"id": "my_envs.fast:Ev-v0"}}) == [("env.id", "my_envs.fast")]


def test_what_an_environment_is_told_to_make_is_named_however_deep_it_stands() -> None:
    kwargs = {"env_id": "evilmod:Ev-v0", "wrappers": [{"use": "other.mod:Wrap"}]}
    assert named({"env": {"id": "GymV26Environment-v0", "kwargs": kwargs}}) == [
        ("env.kwargs.env_id", "evilmod"),
        ("env.kwargs.wrappers.0.use", "other.mod"),
    ]


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

"""`rlctl options`, and the help that is made from the same table."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rl_orch.spec.options import Option, groups, table
from tests.conftest import Ran

Rlctl = Callable[..., Ran]
FIELDS = {"path", "type", "default", "env", "flag", "help"}


def test_json_has_every_option_with_the_fields_of_the_contract(rlctl: Rlctl) -> None:
    document = json.loads(rlctl("options", "--json").out)
    assert set(document) == {"options"}
    assert [option["path"] for option in document["options"]] == list(table())
    for option in document["options"]:
        assert set(option) >= FIELDS
        assert option["help"].endswith(".")
        assert option["flag"].startswith("--")
    assert json.loads(rlctl("options", "--format", "json").out) == document


def test_the_table_has_a_line_for_every_option(rlctl: Rlctl) -> None:
    ran = rlctl("options")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    for option in table().values():
        [line] = [line for line in lines if line.startswith(f"{option.path} ")]
        for part in (option.type, option.variables[0], option.flags[0]):
            assert part in line


def test_markdown_has_a_section_for_every_group_and_a_row_for_every_option(rlctl: Rlctl) -> None:
    text = rlctl("options", "--format", "markdown").out
    for name, about in groups().items():
        assert f"## {name}\n\n{about}\n" in text
    for path in table():
        assert f"\n| `{path}` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {7}


def test_the_schema_has_every_option_with_its_bounds(rlctl: Rlctl) -> None:
    schema = json.loads(rlctl("options", "--format", "schema").out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["required"] == ["env"]
    for option in table().values():
        if option.path not in ("train.epochs", "train.steps_per_epoch"):
            _agrees(_at(schema, option.path), option)


def _at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    node = schema
    for part in path.split("."):
        node = node["properties"][part]
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
            assert node["additionalProperties"] is False
    return node


def _agrees(node: dict[str, Any], option: Option) -> None:
    assert node["description"] == option.help
    assert option.required or node["default"] == option.default
    parts = node.get("anyOf", [node])
    assert ({"type": "null"} in parts) is option.nullable
    known = {"minimum", "maximum", "exclusiveMinimum"}
    bounds = {key for part in parts for key in part if key in known}
    if option.type.startswith("whole number in"):
        assert bounds == {"minimum", "maximum"}
    assert not {"ge", "gt", "le", "lt"} & {key for part in parts for key in part}


@pytest.mark.parametrize(
    ("asked", "paths"),
    [
        ("rollout", ["rollout.steps", "rollout.overlap", "rollout.collector"]),
        ("policy.network", [path for path in table() if path.startswith("agent.network.")]),
        ("train.learningRate", ["train.lr"]),
        ("seed", ["env.seed"]),
        ("spec", ["spec_version", "name", "seeds", "tags", "parent", "role", "tuned"]),
        ("train", [path for path in table() if path.startswith("train.")]),
    ],
)
def test_one_group_or_option_may_be_asked_for(rlctl: Rlctl, asked: str, paths: list[str]) -> None:
    document = json.loads(rlctl("options", asked, "--json").out)
    assert [option["path"] for option in document["options"]] == paths


def test_a_single_option_is_shown_with_all_its_names(rlctl: Rlctl) -> None:
    shown = rlctl("options", "train.lr").out
    names = (*table()["train.lr"].flags, *table()["train.lr"].variables, "train.learning_rate")
    assert [name for name in names if name not in shown] == []


@pytest.mark.parametrize(("asked", "meant"), [("trian", "train"), ("lr", "train.lr")])
def test_an_unknown_group_is_answered_with_the_nearest(
    rlctl: Rlctl, asked: str, meant: str
) -> None:
    ran = rlctl("options", asked)
    assert (ran.code, ran.out) == (2, "")
    assert f"{asked} is unknown; a spec has: " in ran.err
    assert f"Did you mean {meant}?" in ran.err
    error = json.loads(rlctl("options", asked, "--json").out)["error"]
    assert error["hint"] == f"Did you mean {meant}?"


@pytest.mark.parametrize("command", ["launch", "check"])
def test_help_shows_each_option_once_under_its_group(
    rlctl: Rlctl, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = rlctl(command, "--help").out
    words = text.split()
    for option in table().values():
        assert words.count(option.flags[0]) >= 1, option.flags[0]
        assert [flag for flag in option.flags[1:] if flag in words] == []
    own, spec = text.index("--file"), text.index("─ env: ")
    assert own < spec < text.index("─ metrics (pending): ")
    assert "`[low," in text

"""Cursors: what leads from page to page, and what is refused."""

import base64
import json

import pytest

from rl_orch.errors import BadInput
from rl_orch.records.queries import SORTS, Query, cursor, position


def encoded(document: object) -> str:
    """A cursor that somebody made by hand."""
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        ("-created_at", 1_700_000_000.123456),
        ("updated_at", 0.0),
        ("env_steps", 2**62),
        ("-state", "queued"),
        ("name", "-rf ~ & ?#%/ ünï ✓"),
        ("name", "✓" * 100),
    ],
)
def test_a_cursor_leads_back_to_its_place_and_needs_no_quotes(sort: str, value: object) -> None:
    text = cursor(sort, value, "walker-s1")
    assert position(text, sort) == (value, "walker-s1")
    assert text.replace("-", "").replace("_", "").isalnum()
    assert text[0].isalpha()


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "",
        "ÿ",
        "x" * 100_000,
        cursor("name", "walker", "r-1"),
        cursor("created_at", 1.0, "r-1"),
        encoded(None),
        encoded({}),
        encoded([]),
        encoded("abc"),
        encoded(["-created_at", "1.0", "r-1"]),
        encoded(["-created_at", True, "r-1"]),
        encoded(["-created_at", 1, "r-1"]),
        encoded(["-created_at", float("nan"), "r-1"]),
        encoded(["-created_at", float("inf"), "r-1"]),
        encoded(["-created_at", 1.0, None]),
        encoded(["-created_at", 1.0, "r-1", 2]),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        base64.urlsafe_b64encode(b"9" * 5000).decode(),
    ],
)
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not one of ours for runs by -created_at"):
        position(text, "-created_at")


def test_a_count_that_no_database_holds_is_no_place() -> None:
    with pytest.raises(BadInput, match="not one of ours"):
        position(encoded(["env_steps", 2**63, "r-1"]), "env_steps")


def test_every_order_has_its_opposite() -> None:
    for column in SORTS:
        assert Query(sort=column).column == Query(sort=f"-{column}").column == column
        assert Query(sort=f"-{column}").descending
        assert not Query(sort=column).descending

"""Tokens: shown once, kept as a digest, worth nothing once expired or revoked."""

import re
import sqlite3
from pathlib import Path
from typing import get_args

import pytest

from rl_orch.core.store.runs import Store
from rl_orch.core.store.tokens import SCOPES, Scope, Tokens
from rl_orch.errors import BadInput, Conflict, NotFound
from rl_orch.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "rlctl.db")


@pytest.fixture
def tokens(store: Store, clock: FakeClock) -> Tokens:
    return Tokens(store, clock)


@pytest.mark.parametrize("scope", get_args(Scope))
def test_a_token_opens_what_it_was_made_for(tokens: Tokens, clock: FakeClock, scope: Scope) -> None:
    token, text = tokens.create("ci", scope)
    assert re.fullmatch(rf"rlctl_{token.id}_[A-Za-z0-9_-]{{43}}", text)
    assert tokens.check(text, clock()) == token
    assert (token.name, token.scope, token.created_at) == ("ci", scope, clock())
    assert tokens.list() == [token]


def test_the_database_does_not_have_the_secret(tokens: Tokens, store: Store) -> None:
    _, text = tokens.create("ci", "admin")
    secret = text.split("_", 2)[2]
    with sqlite3.connect(store.location) as connection:
        dump = "\n".join(connection.iterdump())
    assert "ci" in dump
    assert secret not in dump
    assert secret not in str(tokens.list())


def test_a_text_that_is_no_token_opens_nothing(tokens: Tokens, clock: FakeClock) -> None:
    token, text = tokens.create("ci", "admin")
    last = "A" if text[-1] != "A" else "B"
    for wrong in (
        "", "rlctl", "rlctl__", f"rlctl_{token.id}_", text[:-1], text + "x", text[:-1] + last,
        text.upper(), f" {text}", f"{text}\n", text.replace(token.id, "0" * 8), "\0", "ÿ\ud800",
        f"rlctl_{token.id}_{'A' * 43}", "rlctl_' OR 1=1 --_" + "A" * 43, "x" * 1_000_000,
    ):  # fmt: skip
        assert tokens.check(wrong, clock()) is None
    assert tokens.check(text, clock()) == token


def test_a_token_expires(tokens: Tokens, clock: FakeClock) -> None:
    token, text = tokens.create("ci", "read", lifetime_s=60.0)
    assert token.expires_at == clock() + 60.0
    assert tokens.check(text, clock() + 59.9) == token
    assert tokens.check(text, clock() + 60.0) is None


def test_a_revoked_token_opens_nothing_and_is_still_listed(
    tokens: Tokens, clock: FakeClock
) -> None:
    token, text = tokens.create("ci", "read")
    clock.advance(5.0)
    revoked = tokens.revoke("ci")
    assert revoked == token.model_copy(update={"revoked_at": clock()})
    assert tokens.check(text, clock()) is None
    clock.advance(5.0)
    assert tokens.revoke(token.id) == tokens.revoke("ci") == revoked
    assert tokens.list() == [revoked]


def test_a_name_is_free_again_once_its_token_is_worth_nothing(
    tokens: Tokens, clock: FakeClock
) -> None:
    first, _ = tokens.create("ci", "read", lifetime_s=10.0)
    with pytest.raises(Conflict, match="there is a token 'ci' already"):
        tokens.create("ci", "admin")
    clock.advance(10.0)
    second, text = tokens.create("ci", "read")
    assert tokens.revoke("ci").id == second.id
    assert tokens.check(text, clock()) is None
    third, text = tokens.create("ci", "read")
    assert tokens.revoke(first.id).id == first.id
    assert tokens.check(text, clock()) == third
    assert tokens.list()[0].id == first.id


def test_there_is_a_token_as_long_as_one_counts(tokens: Tokens, clock: FakeClock) -> None:
    assert not tokens.any()
    tokens.create("short", "read", lifetime_s=10.0)
    tokens.create("long", "read")
    assert tokens.any()
    tokens.revoke("long")
    assert tokens.any()
    clock.advance(10.0)
    assert not tokens.any()


def test_an_unknown_token_cannot_be_revoked(tokens: Tokens) -> None:
    tokens.create("nightly", "read")
    with pytest.raises(NotFound) as caught:
        tokens.revoke("nightyl")
    assert caught.value.hint == "Did you mean 'nightly'?"
    with pytest.raises(NotFound, match="no token '%'"):
        tokens.revoke("%")


@pytest.mark.parametrize("name", ["", "-x", "a b", "a\n", "a\x1b[31m", "é", "x" * 65, "a/b"])
def test_a_name_is_a_word_that_is_safe_to_show(tokens: Tokens, name: str) -> None:
    with pytest.raises(BadInput, match="name is"):
        tokens.create(name, "read")


def test_a_scope_and_a_lifetime_must_make_sense(tokens: Tokens) -> None:
    with pytest.raises(BadInput, match="scope is 'root'; must be one of read, operate, admin"):
        tokens.create("ci", "root")  # type: ignore[arg-type]
    for lifetime_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="lifetime_s is"):
            tokens.create("ci", "read", lifetime_s=lifetime_s)
    assert SCOPES == ("read", "operate", "admin")
    assert tokens.list() == []

"""The keys to the HTTP API. The database has a digest of each; the secret is shown once."""

import difflib
import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, Literal, get_args

import sqlalchemy as sa

from rl_orch.core.store.database import Lock
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import TOKENS
from rl_orch.errors import BadInput, Conflict, NotFound
from rl_orch.records import Token

Scope = Literal["read", "operate", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)
FORM = re.compile(r"rlctl_([0-9a-f]{8})_[0-9A-Za-z_-]{43}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Tokens:
    """The tokens in a store's database."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def create(
        self, name: str, scope: Scope, *, lifetime_s: float | None = None
    ) -> tuple[Token, str]:
        """A new token and its text, which cannot be had again."""
        _refuse(name, scope, lifetime_s)
        now, token_id = self._clock(), secrets.token_hex(4)
        text = f"rlctl_{token_id}_{secrets.token_urlsafe(32)}"
        token = Token(
            id=token_id,
            name=name,
            scope=scope,
            created_at=now,
            expires_at=None if lifetime_s is None else now + lifetime_s,
        )
        with self._store.writing(Lock.TOKENS) as connection:
            if connection.execute(_counting(now).where(TOKENS.c.name == name)).first() is not None:
                raise Conflict(
                    f"there is a token {name!r} already",
                    hint="Take another name, or revoke that one.",
                )
            connection.execute(TOKENS.insert().values(**token.model_dump(), digest=_digest(text)))
        return token, text

    def list(self) -> list[Token]:
        """Every token there has been, oldest first."""
        query = sa.select(TOKENS).order_by(TOKENS.c.created_at, TOKENS.c.id)
        return [_token(row) for row in self._store.read(query)]

    def revoke(self, reference: str) -> Token:
        """Let a token count no more, by its id or its name; from now on it opens nothing.

        Of several that had a name, the newest is meant. To revoke twice does no harm.
        """
        with self._store.writing(Lock.TOKENS) as connection:
            newest = sa.select(TOKENS).order_by(TOKENS.c.created_at.desc(), TOKENS.c.id.desc())
            token = _found([_token(row) for row in connection.execute(newest)], reference)
            if token.revoked_at is not None:
                return token
            token = token.model_copy(update={"revoked_at": self._clock()})
            statement = sa.update(TOKENS).where(TOKENS.c.id == token.id)
            connection.execute(statement.values(revoked_at=token.revoked_at))
        return token

    def check(self, text: str, now: float) -> Token | None:
        """The token that a text is; None if it is unknown, expired or revoked."""
        form = FORM.fullmatch(text)
        if form is None:
            return None
        query = _counting(now).where(TOKENS.c.id == form[1])
        with self._store.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None or not hmac.compare_digest(row.digest, _digest(text)):
            return None
        return _token(row)

    def any(self) -> bool:
        """Whether there is a token that counts: neither expired nor revoked."""
        return bool(self._store.read(_counting(self._clock()).limit(1)))


def _refuse(name: str, scope: str, lifetime_s: float | None) -> None:
    if NAME.fullmatch(name) is None:
        raise BadInput(
            f"name is {name!r}; must be 1 to 64 letters, digits and . _ @ -, "
            "and begin with a letter or a digit",
            path="name",
        )
    if scope not in SCOPES:
        raise BadInput(f"scope is {scope!r}; must be one of {', '.join(SCOPES)}", path="scope")
    if lifetime_s is not None and not (math.isfinite(lifetime_s) and lifetime_s > 0):
        raise BadInput(f"lifetime_s is {lifetime_s}; must be above 0", path="lifetime_s")


def _counting(now: float) -> sa.Select[Any]:
    """The tokens that count at a moment."""
    unexpired = sa.or_(TOKENS.c.expires_at.is_(None), TOKENS.c.expires_at > now)
    return sa.select(TOKENS).where(TOKENS.c.revoked_at.is_(None), unexpired)


def _found(tokens: list[Token], reference: str) -> Token:
    """The token of that id, or else the newest of that name.

    One that is not revoked comes first.
    """
    by_id = [token for token in tokens if token.id == reference]
    by_name = [token for token in tokens if token.name == reference]
    by_name.sort(key=lambda token: token.revoked_at is not None)
    if found := by_id + by_name:
        return found[0]
    near = difflib.get_close_matches(reference, [token.name for token in tokens], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "`rlctl token ls` lists them."
    raise NotFound(f"no token {reference!r}", hint=hint)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _token(row: sa.Row[Any]) -> Token:
    return Token.model_validate(dict(row._mapping))

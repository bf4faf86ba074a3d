"""Overrides: what is read without Hydra is read as Hydra reads it."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import BadInput
from rl_orch.spec import overrides
from rl_orch.spec.overrides import PLAIN, Override, parse_override
from rl_orch.spec.reader import parse
from rl_orch.spec.resolve import resolve


@settings(max_examples=300, deadline=None)
@given(st.from_regex(PLAIN, fullmatch=True))
def test_a_plain_override_is_read_as_by_hydra(typed: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overrides, "PLAIN", re.compile("(?!)"))
        by_hydra = parse_override(typed)
    plain = parse_override(typed)
    assert plain == by_hydra
    assert type(plain.value) is type(by_hydra.value)


@pytest.mark.parametrize(
    ("typed", "value", "text"),
    [
        ("train.lr=1e-3", 1e-3, "1e-3"),
        ("train.total_timesteps=50000", 50_000, "50000"),
        ("eval.video=true", True, "true"),
        ("env.id=CartPole-v1", "CartPole-v1", None),
    ],
)
def test_what_people_type_needs_no_grammar(typed: str, value: object, text: str | None) -> None:
    assert PLAIN.fullmatch(typed)
    assert parse_override(typed) == Override(typed.partition("=")[0], value, text)


@pytest.mark.parametrize(
    "typed", ["a.b=NULL", "a.b=007", "a.b=1_000", "a.b=True", "a.b=x,y", "~a.b"]
)
def test_what_may_mean_more_is_left_to_the_grammar(typed: str) -> None:
    assert PLAIN.fullmatch(typed) is None


def test_hydra_is_loaded_only_where_it_is_needed() -> None:
    program = (
        "import sys; from rl_orch.spec.overrides import parse_override\n"
        "parse_override('train.lr=1e-3'); assert 'hydra' not in sys.modules\n"
        "parse_override('env.kwargs={gravity:9.8}'); assert 'hydra' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_wrapper_in_the_spelling_of_the_zoo_is_answered_with_one_that_works() -> None:
    with pytest.raises(BadInput) as raised:
        parse_override("env.wrappers=[{mine:Scale: {factor: 2}}]")
    typed = str(raised.value.hint).partition("'")[2].removesuffix("'.")
    by_override = resolve({"env": "CartPole-v1"}, overrides=[typed])
    document = parse(
        b"{env: {id: CartPole-v1, wrappers: [{module:Class: {factor: 2}}]}}", source=""
    )
    assert resolve(document).env.wrappers == by_override.env.wrappers

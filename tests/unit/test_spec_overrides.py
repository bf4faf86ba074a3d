"""Overrides: what is read without Hydra is read as Hydra reads it."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import BadInput
from rl_orch.spec import overrides
from rl_orch.spec.code import named_by_overrides
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


@pytest.mark.parametrize(
    "typed",
    [
        "env.wrappers=[{mine:Scale: {factor: 2}}]",
        """env.wrappers=[{"mine:Scale": {factor: 2}}]""",
        """env_wrapper=[{'mine:Scale': {"factor": 2}}]""",
        """env.wrappers={"mine.Scale": {"factor": 2}}""",
    ],
)
def test_a_wrapper_is_typed_as_a_file_may_have_it(typed: str) -> None:
    spec = resolve({"env": "CartPole-v1"}, overrides=[typed])
    document = parse(b"{env: {id: CartPole-v1, wrappers: [{mine:Scale: {factor: 2}}]}}", source="")
    assert spec.env.wrappers == resolve(document).env.wrappers
    assert {named.module for named in named_by_overrides([typed])} >= {"mine"}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("""env.kwargs={"gravity": 9.8, b: "{\\"a\\": 1}"}""", {"gravity": 9.8, "b": '{"a": 1}'}),
        (
            "env.kwargs=dict(is_slippery=False, sizes=[4, 8])",
            {"is_slippery": False, "sizes": [4, 8]},
        ),
        ("policy_kwargs=dict(activation_fn=nn.ReLU)", {"activation_fn": "nn.ReLU"}),
    ],
)
def test_maps_may_be_typed_as_json_and_python_have_them(typed: str, value: object) -> None:
    assert parse_override(typed).value == value


@pytest.mark.parametrize(
    "typed",
    [
        *("""a={"b": 1""", """a={"b" 1}""", "a=dict(b=f())", "a=dict(b=open('x'))", "a=dict(**b)"),
        """a={"1": 2}""",
    ],
)
def test_what_is_no_map_in_any_spelling_is_refused_as_it_was_typed(typed: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_override(typed)
    assert repr(typed) in raised.value.message

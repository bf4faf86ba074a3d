"""Files as documents: what is read, and what is refused, quickly and in one sentence."""

import contextlib
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import BadInput, NotFound
from rl_orch.spec.reader import CORE, MAX_BYTES, PLAIN_TAGS, parse, read_spec
from tests.counting import calls

DEEP = 100_000
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
CHAIN = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10)
)


ATTACKS = [
    (BOMB, False, "more than 2,000 values"),
    (MERGES, False, "more than 2,000 values"),
    (CHAIN, False, "nested deeper than 30 levels"),
    ("a: &a [*a]", False, "an alias contains itself (line 1, column 4)"),
    ("a: &a {b: {c: *a}}", False, "an alias contains itself"),
    ("[" * DEEP, False, "nested deeper than 30 levels"),
    ("{a: " * DEEP, False, "nested deeper than 30 levels"),
    ("- " * DEEP, False, "nested deeper than 30 levels"),
    ("? " * DEEP, False, "nested deeper than 30 levels"),
    ("[" * DEEP, True, "nested deeper than 30 levels"),
    ('{"a":' * DEEP, True, "nested deeper than 30 levels"),
    ("[" * 500 + "]" * 500, True, "nested deeper than 30 levels"),
    ("[" + "1," * 40_000 + "1]", True, "more than 2,000 values"),
    ("env: {id: x, id: y}", False, "key 'id' appears twice in one map (line 1, column 14)"),
    ('{"env": {"id": "x", "id": "y"}}', True, "key 'id' appears twice in one map"),
    ("env: !!python/object/apply:os.system [ls]", False, "tag '!!python/object/apply:os"),
    ("env: !custom {id: x}", False, "tag '!custom'"),
    ("env: !!binary aGk=", False, "tag '!!binary'"),
]

MOST_CALLS = 200_000
"""Of functions, in far less than a tenth of a second; `make soak` takes the time."""


def from_yaml(text: str) -> dict[str, Any]:
    return parse(text.encode(), source="spec.yaml")


def from_json(text: str) -> dict[str, Any]:
    return parse(text.encode(), source="spec.json", is_json=True)


def refusal(text: str, *, is_json: bool = False) -> str:
    """The sentence that some text is refused with."""
    with pytest.raises(BadInput) as caught:
        parse(text.encode(), source="spec", is_json=is_json)
    assert "\n" not in caught.value.message
    return f"{caught.value.message} {caught.value.hint or ''}"


@pytest.mark.parametrize(
    ("text", "is_json", "reason"),
    ATTACKS,
    ids=lambda part: part[:12] if isinstance(part, str) else None,
)
def test_an_attack_is_refused_before_it_is_much_work(text: str, is_json: bool, reason: str) -> None:
    said: list[str] = []
    assert calls(lambda: said.append(refusal(text, is_json=is_json))) < MOST_CALLS
    assert reason in said[0]


def test_a_file_larger_than_any_spec_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as opened:
        opened.truncate(10**10)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=f"too large; at most {MAX_BYTES:,} bytes"):
            read_spec(file)
        # A hundredth of the file: other threads and modules that are loaded now count, too.
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("env: {id: x", "expected ',' or '}', but got '<stream end>' (line 1, column 12)"),
        ("env:\n\tid: x\n", "Indent with spaces; YAML takes no tabs."),
        ("env: id: x", "mapping values are not allowed here (line 1, column 8)"),
        ("a: *b", "found undefined alias 'b'"),
        ("a: 1\n---\nb: 2\n", "but found another document"),
        ("a: \x07", "special characters are not allowed"),
        ("name: " + "9" * 5000, "Exceeds the limit (4300 digits)"),
        ("", "spec is empty; must be a map of groups"),
        ("# nothing\n", "The shortest spec is `env: {id: CartPole-v1}`."),
        ("- env", "spec is a list"),
        ("env", "spec is a str"),
        ("? [a, b]\n: 1", "unhashable key"),
    ],
)
def test_what_is_not_a_yaml_map_is_refused_with_its_place(text: str, reason: str) -> None:
    assert reason in refusal(text)


@pytest.mark.parametrize("text", ['{"env":', "{'env': 1}", "", '{"a": 1,}', "1" * 5000])
def test_what_is_not_json_is_refused(text: str) -> None:
    assert "is not JSON" in refusal(text, is_json=True)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadInput, match="spec is not UTF-8 text"):
        parse(b"name: \xff", source="spec")


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "ppo-CartPole-v1.yaml").touch()
    with pytest.raises(NotFound) as caught:
        read_spec(tmp_path / "cartpol.yaml")
    assert "does not exist" in caught.value.message
    assert "ppo-CartPole-v1.yaml" in str(caught.value.hint)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_spec(tmp_path)


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_spec(Path("a\0b"))


def test_a_byte_order_mark_does_no_harm() -> None:
    assert parse(b"\xef\xbb\xbfname: x", source="spec") == {"name": "x"}


def test_dates_and_plain_tags_are_read_as_they_are_written() -> None:
    document = from_yaml("a: 2024-13-45\nb: !!str 5\nc: !!float 1\nd: 2024-01-01")
    assert document == {"a": "2024-13-45", "b": "5", "c": 1.0, "d": "2024-01-01"}


def test_the_page_of_specs_names_the_tags_that_are_read_and_the_size_of_a_file() -> None:
    assert from_yaml("n_timesteps: !!float 1e5") == {"n_timesteps": 100_000.0}
    page = (Path(__file__).parents[2] / "docs" / "spec.md").read_text()
    mistakes = page.partition("## Mistakes")[2].partition("\n## ")[0]
    tags = {f"{CORE}{name}" for name in re.findall(r"`!!(\w+)", mistakes)}
    assert tags == PLAIN_TAGS
    assert f"over {MAX_BYTES:,} bytes" in mistakes


def test_anchors_and_merge_keys_may_be_used() -> None:
    text = """
        one: &one {lr: 1, gamma: 2}
        two: {inner: &two {<<: *one, lr: 3}}
        three: {<<: *two, gamma: 4}
        """
    document = from_yaml(text)
    assert document["two"] == {"inner": {"lr": 3, "gamma": 2}}
    assert document["three"] == {"lr": 3, "gamma": 4}


def test_json_is_read_by_its_name_and_numbers_keep_their_kind() -> None:
    assert from_json('{"a": [1, 1.0, null, true]}') == {"a": [1, 1.0, None, True]}


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=200) | st.text("[]{}:,-?&*!|>'\"%@` \n\tab1", max_size=60).map(str.encode)
)
def test_no_text_at_all_is_met_with_anything_but_a_sentence(data: bytes) -> None:
    for is_json in (False, True):
        with contextlib.suppress(BadInput):
            assert isinstance(parse(data, source="spec", is_json=is_json), dict)


def test_a_hint_says_how_many_files_it_leaves_out(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml", "c.json", "d.yaml", "e.yaml", "f.yaml", "g.yaml", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(NotFound) as raised:
        read_spec(tmp_path / "none.yaml")
    assert str(raised.value.hint).endswith("a.yaml, b.yml, c.json, d.yaml, e.yaml and 2 more.")

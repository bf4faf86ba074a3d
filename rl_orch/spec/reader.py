"""Spec files as plain documents: YAML or JSON, without tags, duplicate keys or alias bombs.

Untrusted text is bounded before it is built: size, depth and the number of values it expands to.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from rl_orch.errors import BadInput, NotFound
from rl_orch.spec.spelling import MAX_DEPTH

MAX_BYTES = 100_000
MAX_VALUES = 2_000
SUFFIXES = (".yaml", ".yml", ".json")
SHOWN = 5
"""Files that a hint names."""

TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
TOO_MANY = f"more than {MAX_VALUES:,} values, with every alias written out"
CORE = "tag:yaml.org,2002:"
PLAIN_TAGS = {CORE + name for name in ("str", "int", "float", "bool", "null", "map", "seq")}


def read_spec(path: Path) -> dict[str, Any]:
    """The document in a spec file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"spec file {str(path)!r} does not exist", hint=_neighbours(path)) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        hint = _neighbours(path / "*") if path.is_dir() else None
        raise BadInput(f"spec file {str(path)!r} cannot be read: {why}", hint=hint) from None
    if len(data) > MAX_BYTES:
        raise BadInput(
            f"spec file {str(path)!r} is too large; at most {MAX_BYTES:,} bytes are read"
        )
    return parse(data, source=str(path), is_json=path.suffix == ".json")


def parse(data: bytes, *, source: str, is_json: bool = False) -> dict[str, Any]:
    """The document in some text; `source` is what errors call it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{source} is not UTF-8 text") from None
    document = parse_json(text, source=source) if is_json else _parse_yaml(text, source)
    if not isinstance(document, dict):
        seen = "empty" if document is None else f"a {type(document).__name__}"
        raise BadInput(
            f"{source} is {seen}; must be a map of groups",
            hint="The shortest spec is `env: {id: CartPole-v1}`.",
        )
    return document


def parse_json(text: str, *, source: str) -> Any:
    """The value of some JSON, bounded and without duplicate keys."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = _first_duplicate(key for key, _ in items)
        if twice is not None:
            raise _Refused(f"key {twice!r} appears twice in one map; keep one")
        return dict(items)

    try:
        value = json.loads(text, object_pairs_hook=pairs)
        _refuse_large(value)
    except _Refused as refused:
        raise BadInput(f"{source}: {refused}") from None
    except RecursionError:
        raise BadInput(f"{source}: {TOO_DEEP}") from None
    except ValueError as error:
        raise BadInput(f"{source} is not JSON: {error}") from None
    return value


def _parse_yaml(text: str, source: str) -> Any:
    loader: _Loader | None = None
    try:
        # Already the constructor looks for characters that YAML does not allow.
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(node, {}, frozenset())
        return loader.construct_document(node)
    except _Refused as refused:
        raise BadInput(f"{source}: {refused}") from None
    except yaml.YAMLError as error:
        hint = "Indent with spaces; YAML takes no tabs." if "'\\t'" in str(error) else None
        raise BadInput(f"{source} is not YAML: {_one_line(error)}", hint=hint) from None
    except ValueError as error:
        reason = str(error).partition(";")[0]
        raise BadInput(f"{source} holds a value that cannot be read: {reason}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Refused(Exception):
    """What a document holds is well-formed, but not taken."""


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which counts what it reads; it takes plain tags alone, and no dates."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.values = 0

    def fetch_flow_collection_start(self, token: Any) -> None:
        """Stop at the bracket that is one too many: the scanner reads far ahead of the parser."""
        if self.flow_level >= MAX_DEPTH:
            raise _Refused(TOO_DEEP)
        super().fetch_flow_collection_start(token)

    def get_event(self) -> yaml.Event:
        """The next event, if it is one that a spec may hold."""
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.CollectionStartEvent):
            self.depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            self.depth -= 1
        self.values += 1
        if self.depth > MAX_DEPTH:
            raise _Refused(TOO_DEEP)
        if self.values > 2 * MAX_VALUES:
            raise _Refused(TOO_MANY)
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in PLAIN_TAGS:
            name = tag.replace(CORE, "!!")
            raise _Refused(f"tag {name!r}{_at(event.start_mark)}; must be plain values")
        return event


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{CORE}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _check_node(
    node: yaml.Node, seen: dict[int, tuple[int, int]], above: frozenset[int]
) -> tuple[int, int]:
    """How many values a node expands to, and how deep, with all aliases followed."""
    if id(node) in above:
        raise _Refused(f"an alias contains itself{_at(node.start_mark)}")
    if id(node) in seen:
        return seen[id(node)]
    inside = [_check_node(child, seen, above | {id(node)}) for child in _children(node)]
    values = 1 + sum(count for count, _ in inside)
    depth = 1 + max((deep for _, deep in inside), default=0)
    if values > MAX_VALUES:
        raise _Refused(TOO_MANY)
    if depth > MAX_DEPTH + 1:
        raise _Refused(TOO_DEEP)
    seen[id(node)] = values, depth
    return values, depth


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if not isinstance(node, yaml.MappingNode):
        return []
    keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    twice = _first_duplicate(key.value for key in keys if key.tag != f"{CORE}merge")
    if twice is not None:
        second = next(key for key in reversed(keys) if key.value == twice)
        raise _Refused(f"key {twice!r} appears twice in one map{_at(second.start_mark)}; keep one")
    return [part for pair in node.value for part in pair]


def _first_duplicate(keys: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None


def _refuse_large(document: Any) -> None:
    level, count = [document], 0
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise _Refused(TOO_MANY)
        level = [part for value in level for part in _parts(value)]
    if level:
        raise _Refused(TOO_DEEP)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem}{_at(getattr(error, 'problem_mark', None))}"


def _at(mark: Any) -> str:
    return f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""


def _neighbours(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    names = sorted(p.name for p in folder.iterdir() if p.suffix in SUFFIXES)
    if not names:
        return "Give the path of a YAML or JSON file, or start without one: --env CartPole-v1."
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"In {str(folder)!r} there are: {', '.join(names[:SHOWN])}{more}."

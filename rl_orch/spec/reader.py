"""Spec files as plain documents: YAML or JSON, without tags, duplicate keys or alias bombs.

Untrusted text is bounded before it is built: size, depth and the number of nodes it expands to.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from rl_orch.errors import BadInput, NotFound

MAX_BYTES = 1_000_000
MAX_DEPTH = 30
MAX_NODES = 20_000


def read_spec(path: Path) -> dict[str, Any]:
    """The document in a spec file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"spec file {str(path)!r} does not exist", hint=_neighbours(path)) from None
    except OSError as error:
        raise BadInput(f"spec file {str(path)!r} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise BadInput(f"spec file {str(path)!r} is larger than {MAX_BYTES:,} bytes")
    return parse(data, source=str(path), is_json=path.suffix == ".json")


def parse(data: bytes, *, source: str, is_json: bool = False) -> dict[str, Any]:
    """The document in some text; `source` is what errors call it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{source} is not UTF-8 text") from None
    document = _parse_json(text, source) if is_json else _parse_yaml(text, source)
    if not isinstance(document, dict):
        seen = "empty" if document is None else f"a {type(document).__name__}"
        raise BadInput(
            f"{source} is {seen}; a spec is a map of groups",
            hint="The shortest one is `env: {id: CartPole-v1}`.",
        )
    return document


def _parse_json(text: str, source: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        for key in keys:
            if keys.count(key) > 1:
                raise BadInput(f"{source}: key {key!r} appears twice in one map")
        return dict(items)

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise BadInput(f"{source} is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise BadInput(f"{source} is not JSON: {error}") from None


def _parse_yaml(text: str, source: str) -> Any:
    try:
        _refuse_deep(text, source)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _refuse_bombs(node, source)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise BadInput(f"{source} is not YAML: {_one_line(error)}") from None


def _refuse_deep(text: str, source: str) -> None:
    """Depth, found in the stream of events, before anything recursive looks at the text."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise BadInput(f"{source} is nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _refuse_bombs(root: yaml.Node, source: str) -> None:
    """Aliases that point to themselves, or that together expand to too much."""
    sizes: dict[int, int] = {}

    def expanded(node: yaml.Node, above: frozenset[int]) -> int:
        if id(node) in above:
            raise BadInput(f"{source}: an alias contains itself")
        if id(node) not in sizes:
            inside = above | {id(node)}
            sizes[id(node)] = 1 + sum(expanded(child, inside) for child in _children(node))
        return sizes[id(node)]

    if expanded(root, frozenset()) > MAX_NODES:
        raise BadInput(f"{source}: its aliases expand to more than {MAX_NODES:,} values")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a key that appears twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} appears twice in one map", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep=deep)


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{problem}{where}"


def _neighbours(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    names = sorted(p.name for p in folder.glob("*.y*ml"))[:5]
    if not names:
        return "Give the path of a YAML or JSON file, or start without one: --env CartPole-v1."
    return f"In {str(folder)!r} there are: {', '.join(names)}."

"""The places outside itself that an ONNX file points to; found without loading it as a model.

A graph may keep tensors in other files and name them by path, which whoever loads it then opens.
This reads just enough of the wire format of protocol buffers to find every such name.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1
_WORD = 2**32 - 1
_DEPTH = 64

# Message → {field number: message that the field holds}, of onnx.proto; only ways to a tensor.
_INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


class Unreadable(ValueError):
    """The bytes are not the wire format of protocol buffers."""


def external_data(data: bytes) -> list[str]:
    """The places outside an ONNX file where its tensors lie, as it names them; none if all are
    inside. `Unreadable` if it is no such file."""
    return list(_external(memoryview(data), "model", 0))


def _external(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        raise Unreadable("graphs inside graphs without end")
    if kind == "tensor":
        yield from _of_tensor(message)
        return
    inner = _INNER[kind]
    for number, value in _fields(message):
        if number in inner and isinstance(value, memoryview):
            yield from _external(value, inner[number], depth + 1)


def _of_tensor(message: memoryview) -> Iterator[str]:
    """The place of one tensor; one that is said to be outside but names none is at `?`."""
    named, outside = [], False
    for number, value in _fields(message):
        if number == _EXTERNAL_DATA and isinstance(value, memoryview):
            entry = {key: text for key, text in _fields(value) if isinstance(text, memoryview)}
            if bytes(entry.get(_ENTRY_KEY, b"")) == b"location":
                named.append(bytes(entry.get(_ENTRY_VALUE, b"")).decode("utf-8", "replace"))
            outside = True
        elif number == _DATA_LOCATION and isinstance(value, int) and value & _WORD == _EXTERNAL:
            outside = True
    if outside:
        yield from named or ["?"]


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: a whole number, or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        # Loaders keep 32 bits of a tag, so a longer one would name another field to them.
        if tag > _WORD or number == 0:
            raise Unreadable(f"no field has the tag {tag:#x}, before byte {at}")
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise Unreadable(f"a field of kind {wire} does not fit at byte {at}")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Unreadable(f"a number does not end at byte {at}")

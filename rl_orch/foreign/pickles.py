"""The pickle inside a torch file, read as data by its instructions.

Python's own unpickler calls whatever a file names. Here nothing is called: of all names, those that
a state dict needs are known, and any other is refused by name.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_orch.errors import BadInput, Damaged, RlctlError

MOST_BYTES = 16 << 20
"""Of a pickle that has names and shapes alone: numbers are outside it."""

MOST_NUMBERS = 1 << 48
"""In a storage: more than any memory has, and few enough that their bytes can be counted."""

STORAGES = {
    "torch.DoubleStorage": "float64",
    "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
DICT = "collections.OrderedDict"
TENSOR = "torch._utils._rebuild_tensor_v2"
PARAMETER = "torch._utils._rebuild_parameter"
KNOWN = {DICT, TENSOR, PARAMETER, *STORAGES}

VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
"""Instructions whose argument is the value."""

CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
COUNTS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
SILENT = {"PROTO", "FRAME"}


@dataclass(frozen=True, slots=True)
class Name:
    """Something that a pickle names and that is known here."""

    path: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers outside the pickle: their type, the key of their entry, and how many they are."""

    dtype: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: where in a storage its numbers are, in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def said_by(data: bytes, what: str) -> Any:
    """The content of a pickle: dicts, lists, tuples, text and numbers, and `View`s for tensors."""
    if len(data) > MOST_BYTES:
        raise BadInput(
            f"{what} has a pickle of {len(data):,} bytes; at most {MOST_BYTES:,} are read"
        )
    reading = _Reading(what)
    try:
        for instruction, argument, _ in pickletools.genops(data):
            if instruction.name == "STOP":
                return reading.stack.pop()
            reading.step(instruction.name, argument)
    except RlctlError:
        raise
    # Instructions that do not fit together fail in as many ways as there are.
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged(f"{what} has a pickle that cannot be read: {error}") from None
    raise Damaged(f"{what} has a pickle that does not end")


class _Reading:
    """The stack and the memo of instructions, and where tuples and pairs begin."""

    def __init__(self, what: str) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._marks: list[int] = []
        self._what = what
        self._steps: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self._marks.append(len(self.stack)),
            "EMPTY_DICT": lambda _: self.stack.append({}),
            "EMPTY_LIST": lambda _: self.stack.append([]),
            "TUPLE": lambda _: self.stack.append(tuple(self._since_mark())),
            "BINPUT": self._remember,
            "LONG_BINPUT": self._remember,
            "MEMOIZE": lambda _: self._remember(len(self._memo)),
            "BINGET": lambda key: self.stack.append(self._memo[key]),
            "LONG_BINGET": lambda key: self.stack.append(self._memo[key]),
            "APPEND": lambda _: self._extend([self.stack.pop()]),
            "APPENDS": lambda _: self._extend(self._since_mark()),
            "SETITEM": lambda _: self._set([self.stack.pop(-2), self.stack.pop()]),
            "SETITEMS": lambda _: self._set(self._since_mark()),
            "GLOBAL": lambda words: self._name(*words.split(" ", 1)),
            "INST": lambda words: self._name(*words.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._name(self.stack.pop(-2), self.stack.pop()),
            "BINPERSID": lambda _: self.stack.append(_storage(self.stack.pop())),
            "REDUCE": lambda _: self.stack.append(self._made(self.stack.pop(), self.stack.pop())),
            "BUILD": self._build,
        }

    def step(self, name: str, argument: Any) -> None:
        """Carry one instruction out, or refuse it."""
        if name in VALUES:
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in COUNTS:
            count = COUNTS[name]
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name in self._steps and name != "INST":
            self._steps[name](argument)
        elif name == "INST":
            self._steps[name](argument)
            raise self._refusal("it makes an object of a class")
        elif name not in SILENT:
            raise self._refusal(f"it has the instruction {name}, which no state dict needs")

    def _name(self, module: str, name: str) -> None:
        path = f"{module}.{name}"
        if path not in KNOWN:
            raise self._refusal(f"it asks for {path[:100]!r}, which its loader would run or make")
        self.stack.append(Name(path))

    def _made(self, arguments: Any, maker: Any) -> Any:
        """The value that a call that is known stands for."""
        match maker, arguments:
            case Name(path), () if path == DICT:
                return {}
            case Name(path), (
                Storage() as storage,
                int(offset),
                tuple(shape),
                tuple(strides),
                *_,
            ) if path == TENSOR:
                (begin,) = _whole((offset,))
                return View(storage, begin, _whole(shape), _whole(strides))
            case Name(path), (View() as view, *_) if path == PARAMETER:
                return view
        raise self._refusal("it calls something in a way that no state dict does")

    def _build(self, _argument: Any) -> None:
        """The state of an OrderedDict is torch's notes on versions, which nobody needs."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise self._refusal("it sets the state of an object")

    def _set(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or not all(isinstance(key, str) for key in pairs[::2]):
            raise self._refusal("it has a mapping whose keys are no names")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise self._refusal("it appends to what is no list")
        self.stack[-1].extend(items)

    def _remember(self, key: int) -> None:
        self._memo[key] = self.stack[-1]

    def _since_mark(self) -> list[Any]:
        at = self._marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def _refusal(self, why: str) -> BadInput:
        return BadInput(
            f"{self._what} is more than weights: {why}; nothing of it was run",
            hint="Save the weights alone: torch.save(model.state_dict(), 'policy.pt').",
        )


def _storage(told: Any) -> Storage:
    match told:
        case ("storage", Name(path), str(key), str(), int(count)) if path in STORAGES:
            return Storage(STORAGES[path], key, count)
    raise ValueError("a storage that torch does not write")


def _whole(numbers: tuple[Any, ...]) -> tuple[int, ...]:
    """Numbers that a place in memory may be reckoned with: none is negative, none is a bool."""
    for number in numbers:
        if type(number) is not int or not 0 <= number < MOST_NUMBERS:
            raise ValueError(f"{str(number)[:40]} in the place of a tensor; must be from 0 on")
    return numbers

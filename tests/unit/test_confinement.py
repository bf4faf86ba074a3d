"""The filter of calls, as the kernel goes through it; on a real one, in tests/integration."""

import os
import struct

import pytest

from rl_orch.io.processes import sandbox
from rl_orch.io.processes.sandbox import ALLOW, CALLS, KILL, REFUSE, UNKNOWN

X32 = 0x40000000


def answer(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What becomes of a call."""
    calls = CALLS[machine]
    words = (*arguments, *[0] * (6 - len(arguments)))
    said = calls.machine if architecture is None else architecture
    call = struct.pack("=IIQ6Q", number, said, 0, *words)
    steps = [*struct.iter_unpack("=HBBI", sandbox._program(calls))]
    held, at = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == sandbox.RETURN:
            return int(value)
        if code == sandbox.LOAD:
            (held,) = struct.unpack_from("=I", call, value)
            continue
        held_true = {
            sandbox.EQUAL: held == value,
            sandbox.ABOVE: held > value,
            sandbox.ANY_BIT: bool(held & value),
        }
        at += yes if held_true[code] else no


@pytest.mark.parametrize("machine", CALLS)
def test_what_is_listed_is_refused_and_reading_is_not(machine: str) -> None:
    calls = CALLS[machine]
    assert {answer(machine, number) for number in calls.refused} == {REFUSE}
    for number, position in calls.opening.items():
        before = [0] * position
        assert answer(machine, number, *before, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
        assert answer(machine, number, *before, os.O_WRONLY) == REFUSE
        assert answer(machine, number, *before, os.O_RDONLY | os.O_TRUNC) == REFUSE
    for number, values in calls.commands.items():
        assert {answer(machine, number, 0, value) for value in values} == {REFUSE}
        assert answer(machine, number, 0, 3) == ALLOW


@pytest.mark.parametrize("machine", CALLS)
def test_what_is_newer_than_the_list_is_as_on_an_older_kernel(machine: str) -> None:
    last = CALLS[machine].last
    assert answer(machine, last) == ALLOW
    for number in (last + 1, 424, 425, 434, 435, 437, 452, 2**32 - 1):
        assert answer(machine, number) == UNKNOWN


def test_no_call_gets_through_under_its_other_number_or_as_of_another_machine() -> None:
    for number in (*CALLS["x86_64"].refused, *CALLS["x86_64"].opening):
        assert answer("x86_64", X32 | number, 0, os.O_WRONLY, os.O_WRONLY) == UNKNOWN
    assert answer("x86_64", 0, architecture=0x40000003) == KILL

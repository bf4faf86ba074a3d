"""Modules under the names that the pages once printed."""

import subprocess
import sys
from importlib import import_module

import pytest

from rl_orch.former_names import FORMER


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_is_the_module_of_today(former: str) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match=FORMER[former]):
        module = import_module(former)
    assert module is import_module(FORMER[former])
    assert module.__spec__ is not None
    assert module.__spec__.name == FORMER[former]


def test_a_former_name_can_be_taken_from_its_package() -> None:
    program = (
        "from rl_orch.io import history, checkpoints\n"
        "from rl_orch.rl.policy import Seen\n"
        "history.of_run, checkpoints.load, Seen\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_any_other_name_is_unknown_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"rl_orch\.io\.nothing"):
        import_module("rl_orch.io.nothing")

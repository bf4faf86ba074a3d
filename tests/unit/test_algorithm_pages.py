"""The details of each algorithm are numbered alike in its file and on its page."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from rl_orch.spec.algorithms import BUILT_IN

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", [*BUILT_IN])
def test_the_page_of_an_algorithm_numbers_the_details_of_its_file(name: str) -> None:
    module = import_module(f"rl_orch.rl.algos.{name}")
    in_file = re.findall(r"^ ?(\d+)\. ", module.__doc__ or "", re.MULTILINE)
    on_page = re.findall(r"^(\d+)\. ", (DOCS / f"{name}.md").read_text("utf-8"), re.MULTILINE)
    assert in_file == [str(number) for number in range(1, len(in_file) + 1)]
    assert on_page == in_file

"""The page about faults names the tests that hold what it says."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_that_the_page_names_exists() -> None:
    page = (TESTS.parent / "docs" / "faults.md").read_text("utf-8")
    sources = "".join(file.read_text("utf-8") for file in TESTS.rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in sources] == []

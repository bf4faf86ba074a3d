"""The real command, as in the integration tests; labs, as in those of faults; and the figures of
what passed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import homes, postgres, postgres_url, shared_lab
from tests.faults.lab import Lab
from tests.integration.conftest import shell

__all__ = ["homes", "postgres", "postgres_url", "shared_lab", "shell"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """One home with a database of its own, and a service that has torch loaded for its runs."""
    made = Lab(tmp_path, spares=1)
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell the figures that tests have recorded."""
    reports: list[pytest.TestReport] = terminalreporter.getreports("passed")
    for report in reports:
        for name, value in report.user_properties:
            if name == "figures" and report.when == "call":
                terminalreporter.write_line(f"{report.location[2]}: {value}")

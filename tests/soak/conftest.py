"""The real command, as in the integration tests; labs, as in those of faults; and the figures of
what passed.
"""

from typing import Any

import pytest

from tests.faults.conftest import homes, lab, postgres, postgres_url, shared_lab
from tests.integration.conftest import shell

__all__ = ["homes", "lab", "postgres", "postgres_url", "shared_lab", "shell"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell the figures that tests have recorded."""
    reports: list[pytest.TestReport] = terminalreporter.getreports("passed")
    for report in reports:
        for name, value in report.user_properties:
            if name == "figures" and report.when == "call":
                terminalreporter.write_line(f"{report.location[2]}: {value}")

"""Contract suites outside of pytest: on a page, in a notebook, at a prompt."""

import inspect
import tempfile
from pathlib import Path


def holds(suite: type) -> list[str]:
    """The names of a suite's tests, once all of them have passed; the first that fails raises.

    Each has an instance of its own, and an empty folder for `tmp_path`.
    """
    names = [name for name in dir(suite) if name.startswith("test_")]
    for name in names:
        test = getattr(suite(), name)
        with tempfile.TemporaryDirectory() as folder:
            wants = inspect.signature(test).parameters
            test(**({"tmp_path": Path(folder)} if "tmp_path" in wants else {}))
    return names

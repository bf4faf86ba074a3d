"""The source files that a spec names: their digests say whether a run still does what it did."""

import hashlib
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from rl_orch import plugins
from rl_orch.spec.model import Spec
from rl_orch.spec.named_plugins import modules_of


def of(spec: Spec) -> dict[str, str]:
    """Digests of the files of modules that the spec names, and of what these import from folders
    that are not installed; imports them. By name, as a fingerprint has it."""
    named = modules_of(spec)
    if not named:
        return {}
    for name in named:
        with suppress(Exception):  # Whoever needs it says why it cannot be imported.
            import_module(name)
    folders = plugins.searched_folders()
    files = {
        Path(file)
        for name, module in [*sys.modules.items()]
        if (file := getattr(module, "__file__", None))
        and (name in named or any(Path(file).is_relative_to(folder) for folder in folders))
        and not name.startswith("rl_orch")
    }
    return dict(filter(None, map(_digest, sorted(files))))


def _digest(file: Path) -> tuple[str, str] | None:
    with suppress(OSError):
        return f"source {file.name}", hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    return None

"""Episodes of an evaluation that can be driven again, as a file."""

import json
from pathlib import Path

from pydantic import ValidationError

from rl_orch.errors import Damaged
from rl_orch.io.files import regular
from rl_orch.io.run.directory import write_text
from rl_orch.records.tasks import Recorded

RECORDS = ".episodes.json"
"""How the names of files with records end."""


def write_records(path: Path, episodes: dict[str, Recorded]) -> None:
    """Episodes by what they are called: best, worst."""
    document = {name: each.model_dump() for name, each in episodes.items()}
    write_text(path, json.dumps(document, allow_nan=False) + "\n")


def read_records(path: Path) -> dict[str, Recorded]:
    """The records that `write_records` wrote; nothing where there is no such file."""
    try:
        document = json.loads(regular.read_text(path))
        return {name: Recorded.model_validate(each) for name, each in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError, ValidationError) as error:
        raise Damaged(f"{str(path)!r} cannot be read: {error}") from None

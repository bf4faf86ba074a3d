"""The episode of a policy that is meant: recorded by an evaluation, or to be played by a number."""

import os
import sys
from pathlib import Path
from typing import Any

from rl_orch.core.policies import evaluation
from rl_orch.core.registry.references import PolicySource
from rl_orch.errors import BadInput, NotFound
from rl_orch.io.policies import bundles
from rl_orch.io.policies.episode_records import RECORDS, read_records
from rl_orch.records.tasks import Recorded

NOTABLE = ("best", "worst")
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables one of which says where a window can be shown."""


def refuse_unseen() -> None:
    """Raise if there is no screen to show an episode on."""
    if sys.platform == "linux" and not any(map(os.environ.get, SCREENS)):
        raise BadInput(
            f"there is no screen here: none of {', '.join(SCREENS)} is set",
            hint="Film it: --video episode.mp4",
        )


def episode(
    source: PolicySource, word: str, of: str | None, records: Path | None
) -> dict[str, Any]:
    """What a `FilmTask` says of an episode: best or worst, as recorded, or a number."""
    if word not in NOTABLE:
        return {"number": _number(word)}
    if source.kind == "bundle" and records is None and of in (None, evaluation.FINAL):
        return _reported(source, word)
    return {"episode": _recorded(source, of or "", word, records)}


def _reported(source: PolicySource, word: str) -> dict[str, Any]:
    """The best or the worst episode of the evaluation that a bundle carries; played anew."""
    report = bundles.read(source.path).report
    choose = max if word == "best" else min
    number = choose(range(len(report.returns)), key=report.returns.__getitem__)
    return {"number": number, "seed": report.seed, "deterministic": report.deterministic}


def _recorded(source: PolicySource, of: str, word: str, records: Path | None) -> Recorded:
    if records is None:
        of = of or _newest(source)
        records, names = _records(source, of)
    else:
        of, names = records.name, []
    record = read_records(records).get(word)
    if record is None:
        raise NotFound(
            f"evaluation {of!r} has recorded no {word} episode; there are records of: "
            f"{', '.join(names) or 'none'}",
            hint="`rlctl eval` records some; or name an episode by its number: --episode 0.",
        )
    return record


def _newest(source: PolicySource) -> str:
    name = evaluation.name_of_newest(source)
    if name is None:
        raise NotFound(
            f"no evaluation in its run has recorded episodes of {source.name}",
            hint=f"`rlctl eval {source.word}` records its best and its worst; or name an episode "
            "by its number: --episode 0.",
        )
    return name


def _records(source: PolicySource, of: str) -> tuple[Path, list[str]]:
    """The file of records that is meant, and the names of those that the run has."""
    if Path(of).name != of:
        raise BadInput(
            f"--of is {of!r}; must be the name of an evaluation, such as final, or a file whose "
            f"name ends in {RECORDS}"
        )
    directory = evaluation.run_directory(source)
    if directory is None:
        return Path(of + RECORDS), []
    files = (directory.path / "evals").glob(f"*{RECORDS}")
    return directory.records_file(of), sorted(file.name.removesuffix(RECORDS) for file in files)


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 9):
        raise BadInput(f"--episode is {word!r}; must be best, worst, or a number from 0 on")
    return int(word)

"""Evidence that rules of a gate read besides a report: what is wanted, and what was gathered.

Whoever supervises a run writes what is wanted beside its reports. What was gathered goes into the
file of the report itself, so that the two are of one checkpoint, and one digest stands for both.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import Field

from rl_orch.io.files import regular
from rl_orch.io.run.directory import RunDir, write_text
from rl_orch.records import EvalReport, Evaluation, Parity, Record

GATHERED = "@gathered"
"""Where it stands beside the reports by policy; no policy has such a name."""

WANTED = "wanted"
LONGEST = 200


class Champion(Record):
    """The model that has an alias: where its checkpoint is, and the digest of its files.

    It is `itself` where it is the very checkpoint that is judged.
    """

    model_id: int
    directory: str
    checkpoint: str
    digest: str | None = None
    itself: bool = False


class EvidenceRequest(Record):
    """The evidence that rules want of a checkpoint: how the champions do on its seeds, by alias
    (None where nobody has it), how long it takes to decide, and what a bundle of it is like."""

    checkpoint: str
    champions: dict[str, Champion | None] = Field(default_factory=dict)
    latency: bool = False
    bundle: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.champions) or self.laborious

    @property
    def laborious(self) -> bool:
        """Whether a process has to play or to measure for it."""
        return any(map(plays, self.champions.values())) or self.latency or self.bundle


class GatherTask(Record):
    """A checkpoint with the report on it, and what else a gate wants of it."""

    directory: str
    report: EvalReport
    wanted: EvidenceRequest


class Baseline(Record):
    """A champion with the report on it, or with the problem that there is none."""

    champion: Champion | None = None
    report: EvalReport | None = None
    problem: str | None = None


class Latency(Record):
    """The 99th percentile of the time of one decision on one observation; over `n` of them."""

    p99_ms: float
    n: int


class Bundled(Record):
    """A bundle that was made: where, how large, its digest, and how each form of it compares."""

    path: str
    bytes: int
    digest: str
    parity: tuple[Parity, ...]


class GateEvidence(Record):
    """The evidence that was gathered of a checkpoint, whose files have this digest.

    `problems` say why the latency or the bundle is missing. `history` are the evaluations during
    training with their steps, `guardrail_events` how often a guardrail of the run spoke up.
    """

    digest: str | None = None
    baselines: dict[str, Baseline] = Field(default_factory=dict)
    latency: Latency | None = None
    bundle: Bundled | None = None
    problems: dict[str, str] = Field(default_factory=dict)
    history: tuple[tuple[int, Evaluation], ...] | None = None
    guardrail_events: int | None = None


def plays(champion: Champion | None) -> bool:
    """Whether a champion has to be played to be compared with."""
    return champion is not None and not champion.itself


def ask(directory: RunDir, wanted: EvidenceRequest) -> None:
    """Note what is wanted, before the process that evaluates is started."""
    file = directory.report_file(WANTED)
    if wanted.anything:
        write_text(file, wanted.model_dump_json() + "\n")
    else:
        file.unlink(missing_ok=True)


def asked(directory: RunDir, checkpoint: str) -> EvidenceRequest:
    """The evidence wanted of a checkpoint: none, where that was not noted or is of another one."""
    try:
        request = EvidenceRequest.model_validate_json(
            regular.read_text(directory.report_file(WANTED))
        )
    except (OSError, ValueError):
        return EvidenceRequest(checkpoint=checkpoint)
    return request if request.checkpoint == checkpoint else EvidenceRequest(checkpoint=checkpoint)


def say(directory: RunDir, doing: str | None) -> None:
    """Note what is being gathered, for whoever supervises; None once all of it is."""
    file = _doing_file(directory)
    if doing is None:
        file.unlink(missing_ok=True)
    else:
        write_text(file, doing + "\n")


def said(directory: RunDir) -> str | None:
    """The note on what is being gathered."""
    return regular.read_note(_doing_file(directory)).strip()[:LONGEST] or None


def read(directory: RunDir, name: str, digest: str | None) -> GateEvidence | None:
    """The evidence gathered with a report; if it was of files with this digest and can be read."""
    try:
        document = json.loads(regular.read_text(directory.report_file(name)))
        evidence = GateEvidence.model_validate(document[GATHERED])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return evidence if evidence.digest == digest else None


def write(directory: RunDir, name: str, report: EvalReport, gathered: GateEvidence | None) -> None:
    """Keep a report, and what was gathered with it, in one file."""
    write_text(directory.report_file(name), text(documents(report, gathered)))


def documents(report: EvalReport, gathered: GateEvidence | None) -> dict[str, Any]:
    """A report by its policy, and what was gathered with it."""
    document = {report.policy: json.loads(report.model_dump_json())}
    return (
        document
        if gathered is None
        else document | {GATHERED: json.loads(gathered.model_dump_json())}
    )


def text(document: dict[str, Any]) -> str:
    """Documents as a file holds them."""
    return json.dumps(document, allow_nan=False) + "\n"


def _doing_file(directory: RunDir) -> Path:
    return directory.report_file(WANTED).with_name("doing.txt")

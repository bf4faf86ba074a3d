"""The records that cross processes, files and sockets: Run, Group, Attempt, Event, EvalReport,
Verdict, ModelVersion, Alias. Data only; what may happen to a run is in `core/runs/state.py`."""

from rl_orch.records.clock import CLOCK_UNITS, Clock, ClockUnit
from rl_orch.records.events import Event, EventKind
from rl_orch.records.exactness import Certificate, Exactness, FirstDifference, Kill
from rl_orch.records.models import (
    Alias,
    AliasChange,
    ModelVersion,
    ModelView,
    Pruning,
    RegistryFault,
    Retirement,
    StoredVerdict,
    Verification,
)
from rl_orch.records.record import Record
from rl_orch.records.reports import (
    Check,
    Estimate,
    EvalReport,
    Evaluation,
    GroupEvaluation,
    Parity,
    Stopping,
    Verdict,
    Verdicts,
)
from rl_orch.records.runs import Attempt, Checkpoint, Group, LetGo, Run, State, Submission
from rl_orch.records.service import RunnerCapabilities, Service, Token
from rl_orch.records.views import Episodes, EpisodeSummary, History, RunView, TrackerStatus

__all__ = [
    "CLOCK_UNITS",
    "Alias",
    "AliasChange",
    "Attempt",
    "Certificate",
    "Check",
    "Checkpoint",
    "Clock",
    "ClockUnit",
    "EpisodeSummary",
    "Episodes",
    "Estimate",
    "EvalReport",
    "Evaluation",
    "Event",
    "EventKind",
    "Exactness",
    "FirstDifference",
    "Group",
    "GroupEvaluation",
    "History",
    "Kill",
    "LetGo",
    "ModelVersion",
    "ModelView",
    "Parity",
    "Pruning",
    "Record",
    "RegistryFault",
    "Retirement",
    "Run",
    "RunView",
    "RunnerCapabilities",
    "Service",
    "State",
    "Stopping",
    "StoredVerdict",
    "Submission",
    "Token",
    "TrackerStatus",
    "Verdict",
    "Verdicts",
    "Verification",
]

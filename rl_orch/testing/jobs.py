"""A contract suite of laborious verbs, the same here and as jobs over HTTP; and jobs without
processes, carried out by an orchestrator in this very one, such as a fake's."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.core.jobs.kinds import Workplace, carry_out
from rl_orch.core.jobs.queue import JobProcess
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput, NotFound
from rl_orch.io.processes.task_worker import ProgressCallback
from rl_orch.records.jobs import (
    JOBS,
    DoctorJob,
    EvaluateJob,
    ExportJob,
    JobDone,
    JobRequest,
    JobTask,
    ProfileJob,
    PromoteJob,
    ValidateJob,
)
from rl_orch.testing.fakes import FakeRunner, a_spec, trains_to
from rl_orch.testing.verbs import VerbsUnderTest, alike


@dataclass(slots=True)
class InlineJob:
    """Execution of a job by an orchestrator in this process; it cannot be ended from outside."""

    here: Orchestrator

    def answer(self, request: JobTask, watch: ProgressCallback) -> JobDone:
        """What came of it."""
        at = Workplace(self.here, watch, Path(request.folder), request.who)
        answer = carry_out(at, JOBS[request.kind].model_validate(request.arguments))
        return JobDone(answer=answer.model_dump(mode="json"))

    def ask_to_end(self) -> None:
        """Do nothing: it ends by itself."""


def a_task(home: Path, request: JobRequest[Any]) -> JobTask:
    """A job of a home, as its process is given it."""
    folder = home / "jobs" / "job-000000000001"
    folder.mkdir(parents=True)
    return JobTask(
        home=str(home),
        database=str(home / "rlctl.db"),
        folder=str(folder),
        who="ann",
        kind=request.kind,
        arguments=request.model_dump(mode="json"),
    )


class JobProcessContract(ABC):
    """The contract of whatever a service lets carry out its jobs."""

    @abstractmethod
    def make_process(self, home: Path) -> JobProcess:
        """A process for one job, at a home that may be empty yet."""

    def test_it_answers_what_the_job_comes_to(self, tmp_path: Path) -> None:
        """And says what it is doing, with the part that is done."""
        told: list[tuple[str, float]] = []
        task = a_task(tmp_path, DoctorJob())
        done = self.make_process(tmp_path).answer(task, lambda *news: told.append(news))
        assert DoctorJob.answers.model_validate(done.answer)
        assert all(isinstance(doing, str) and 0.0 <= part <= 1.0 for doing, part in told)

    def test_what_cannot_be_done_is_refused_by_its_kind(self, tmp_path: Path) -> None:
        """The caller sees the error that it would see here."""
        task = a_task(tmp_path, EvaluateJob(policy="nobody"))
        refusal = "none"
        try:
            self.make_process(tmp_path).answer(task, lambda *_: None)
        except NotFound as error:
            refusal = error.message
        assert "nobody" in refusal

    def test_one_that_is_not_at_work_may_be_asked_to_end(self, tmp_path: Path) -> None:
        """It ends nothing."""
        self.make_process(tmp_path).ask_to_end()


class JobsContract(ABC):
    """The contract of everybody who carries out requests: evaluate, export, profile and more."""

    @abstractmethod
    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        """The verbs under test, at the home of an orchestrator in this process."""

    @abstractmethod
    def make_bundle(self, folder: Path) -> Path:
        """A bundle of a policy of CartPole-v1."""

    def test_a_policy_is_evaluated_and_exported_and_what_is_made_is_here(
        self, tmp_path: Path
    ) -> None:
        """Wherever it is carried out: files come to the path that was asked for."""
        bundle, told = str(self.make_bundle(tmp_path)), []
        out, graph = tmp_path / "kept", tmp_path / "policy.ts"
        with self.reach(self._local(tmp_path)) as verbs:
            asked = EvaluateJob(policy=bundle, episodes=4, seed=3, out=str(out))
            evaluated = verbs.carry_out(asked, lambda doing, done: told.append(done))
            assert (evaluated.result.eval.n, evaluated.seed, evaluated.env) == (4, 3, "CartPole-v1")
            assert {Path(path).parent for path in evaluated.files.values()} == {out / "evals"}
            assert all(Path(path).is_file() for path in evaluated.files.values())
            assert told
            fresh = EvaluateJob(policy=bundle, episodes=1, out=str(tmp_path / "fresh"))
            first, second = verbs.carry_out(fresh), verbs.carry_out(fresh)
            assert first.seed != second.seed
            assert len({Path(each.files["report"]) for each in (first, second)}) == 2
            assert all(Path(each.files["report"]).is_file() for each in (first, second))
            export = ExportJob(policy=bundle, format="torchscript", rows=8, out=str(graph))
            written = verbs.carry_out(export)
            assert (written.path, written.bytes) == (str(graph), graph.stat().st_size)

    def test_a_training_is_profiled(self, tmp_path: Path) -> None:
        """For as many steps as were asked for."""
        spec = a_spec("train.engine=torch", "env.backend=sync", "env.num_envs=2")
        with self.reach(self._local(tmp_path)) as verbs:
            asked = ProfileJob(spec=spec.model_dump(mode="json"), steps=64)
            result = verbs.carry_out(asked)
            assert result.profile.steps >= 64
            assert result.spec.config_hash == spec.config_hash

    def test_what_cannot_be_done_is_refused_in_the_same_words(self, tmp_path: Path) -> None:
        """Before anything is played."""
        local = self._local(tmp_path)
        local.launch(a_spec("name=bare", "registry.enable=false"))
        external = a_spec().model_dump(mode="json") | {
            "runner": {"name": "external", "command": ["x"]}
        }
        with self.reach(local) as verbs:
            asked: list[Callable[[VerbsUnderTest], object]] = [
                lambda known: known.carry_out(EvaluateJob(policy="nobody")),
                lambda known: known.carry_out(EvaluateJob(policy="bare")),
                lambda known: known.carry_out(EvaluateJob(policy="")),
                lambda known: known.carry_out(ExportJob(policy="99")),
                lambda known: known.carry_out(ValidateJob(model="nobody")),
                lambda known: known.carry_out(PromoteJob(model="nobody", to="production")),
                lambda known: known.carry_out(ProfileJob(spec=external, steps=8)),
            ]
            for ask in asked:
                assert isinstance(alike(local, verbs, ask), BadInput)

    def _local(self, folder: Path) -> Orchestrator:
        return Orchestrator(folder / "home", FakeRunner(trains_to([4.0, 5.0] * 6)))

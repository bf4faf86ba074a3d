"""Experiments: a spec that is checked, or submitted and queued."""

from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import Header, Request, Response

from rl_orch.api.parts import Here
from rl_orch.api.schemas import Checked, CheckError, Experiment
from rl_orch.errors import BadInput, ConsentNeeded, Problem
from rl_orch.http.access import require_code, require_owner
from rl_orch.http.operations import json_response, operation, router
from rl_orch.http.problems import VISIBLE, HttpProblem
from rl_orch.http.threads import ThreadLimiter
from rl_orch.records import Submission
from rl_orch.spec import checks, code, consent
from rl_orch.spec.inheritance import KnowsViews, inherited
from rl_orch.spec.model import Spec
from rl_orch.spec.tuned import resolve_tuned

CHECKS_AT_ONCE = 4
"""A check starts a process that makes the environment; more at once would only be slower."""

routes = router("experiments")
_checking = ThreadLimiter(CHECKS_AT_ONCE)

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="The same request with the same key, however often, makes one experiment.",
        max_length=200,
        pattern=VISIBLE,
        examples=["8f14e45f-ceea-467f-a34b-5a2e2cfc0a1d"],
    ),
]


AGAIN = {"model": Submission, "description": "It was submitted before, with the same key"}


@routes.post(
    "/experiments",
    **operation("submitExperiment", Submission, "operate", 409, 413, status=201, also={200: AGAIN}),
)
async def submit_experiment(
    body: Experiment, request: Request, here: Here, idempotency_key: IdempotencyKey = None
) -> Response:
    """Queue what a spec asks for: a run, or a group where it has `seeds`. Durable when answered.

    A spec that names code of its own, a module or a program, needs the scope admin; a program also
    needs `consent`.
    """
    spec = await to_thread.run_sync(spec_of, body, here.orchestrator)
    require_code(request, code.named_by(spec))
    require_owner(request, body.module_path)
    if consent.is_needed(spec) and not body.consent:
        raise consent_needed(spec)
    submission = await _checking(
        here.orchestrator.submit, spec, key=idempotency_key, module_path=body.module_path
    )
    here.wake()
    return json_response(submission, 200 if submission.repeated else 201)


@routes.post("/experiments/check", **operation("checkExperiment", Checked, "operate", 413))
async def check_experiment(body: Experiment, request: Request, here: Here) -> Response:
    """Say everything that can be known about a spec before it is carried out.

    This makes the environment in a process of its own, so it takes more than the scope read; as
    to submit it, a spec that names code of its own needs the scope admin.
    """
    try:
        spec = await to_thread.run_sync(spec_of, body, here.orchestrator)
        require_code(request, code.named_by(spec))
        require_owner(request, body.module_path)
        warnings: list[Problem] = []
        spec = await _checking(here.orchestrator.check, spec, body.module_path, warnings.append)
    except BadInput as error:
        errors = [CheckError(code=error.code, **finding) for finding in error.findings()]
        return json_response(Checked(**checks.findings(None), errors=errors))
    return json_response(Checked(**checks.findings(spec, warnings), errors=[]))


def spec_of(body: Experiment, home: KnowsViews) -> Spec:
    """The spec that is meant. What the service's own environment says has no part in it."""
    inherit = partial(inherited, home)
    return resolve_tuned(body.spec, inherit=inherit, overrides=body.overrides)


def consent_needed(spec: Spec) -> HttpProblem:
    """The answer to a spec whose program nobody has agreed to."""
    error = ConsentNeeded(
        f"this would run the program {consent.shown(spec.runner.command)}",
        path="runner.command",
        hint="If that is what you want, send it again with `consent: true`.",
    )
    facts = {"command": list(spec.runner.command), "preview": consent.preview(spec)}
    return HttpProblem(error, facts=facts)

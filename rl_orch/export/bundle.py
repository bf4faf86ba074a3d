"""Policies written out: a graph in one format, or a whole bundle; checked before it is kept."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import yaml
from gymnasium import spaces
from numpy.typing import NDArray
from safetensors.numpy import save as encode_tensors

from rl_orch import stats
from rl_orch.export import parity
from rl_orch.export.acting import GraphActor
from rl_orch.export.card import card
from rl_orch.export.formats import Writer, Written, session_run
from rl_orch.export.graph import PolicyGraph
from rl_orch.export.quantizing import quantized
from rl_orch.export.views import normalizers_of
from rl_orch.io.policies import bundles
from rl_orch.io.policies.bundles import INT8, Document, GraphParity, PolicyDocument, Quantized
from rl_orch.io.policies.requests import FILES
from rl_orch.records import EvalReport
from rl_orch.rl.envs import space_json
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.policies.policy import TENSOR_PREFIX, PolicyModule
from rl_orch.spec.model import Spec

ROWS = 10_000
"""Observations on which graphs are compared, unless told otherwise."""

Tell = Callable[[str, float], None]
"""Takes what is being done, and the part of all work that is done."""


@dataclass(frozen=True, slots=True)
class ExportSubject:
    """What is exported: a policy, its spec, what evaluated it, and where it comes from."""

    policy: PolicyModule
    spec: Spec
    report: EvalReport
    lineage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """A graph that was written and found equal to the policy in torch."""

    written: Written
    parity: GraphParity


class Export:
    """One policy on its way out."""

    def __init__(self, policy: PolicyModule, spec: Spec, *, rows: int = ROWS, tell: Tell) -> None:
        self._policy, self._spec, self._tell = policy, spec, tell
        self.graph = PolicyGraph(policy, spec)
        self._writer = Writer(self.graph)
        tell("playing", 0.0)
        self._rows = parity.gather(policy, self.graph, spec, rows)
        equality = self._compare(parity.in_torch(self.graph))
        parity.refuse_unless_equal("a graph", equality)

    def write(self, form: str) -> CheckedGraph:
        """The graph in one format; an error if it is not the policy."""
        self._tell(f"writing {form}", (1 + [*FILES].index(form)) / (len(FILES) + 2))
        written = self._writer.write(form)
        equality = self._compare(written.run)
        parity.refuse_unless_equal(form, equality)
        return CheckedGraph(written, equality)

    def quantize(self, onnx: Written, *, episodes: int) -> tuple[bytes, Quantized]:
        """The ONNX graph with weights of 8 bits, and what that does to returns, one row at a time:
        rows that are asked about together would change each other's actions."""
        self._tell("quantising", 0.8)
        data = quantized(onnx.data)
        before, after = (self._returns(run, episodes) for run in (onnx.run, session_run(data)))
        apart = stats.summarize([b - a for a, b in zip(before, after, strict=True)])
        return data, Quantized(
            bytes_before=len(onnx.data),
            bytes_after=len(data),
            mean_before=float(np.mean(before)),
            mean_after=float(np.mean(after)),
            difference_ci95=apart.ci95,
            n=episodes,
        )

    def _compare(self, run: parity.Run) -> GraphParity:
        return parity.compare(run, self._rows, self._policy.action_space)

    def _returns(self, run: parity.Run, episodes: int) -> tuple[float, ...]:
        spec = self._spec.changed({"env.num_envs": 1})
        actor, seed = GraphActor(run, self.graph.inputs, spec), final_evaluation_seed(spec)
        report = evaluate(actor, spec, episodes=episodes, seed=seed, deterministic=True, step=0)
        return report.returns


def bundle_files(
    subject: ExportSubject,
    tensors: Mapping[str, NDArray[Any]],
    *,
    int8: bool = False,
    rows: int = ROWS,
    tell: Tell,
) -> dict[str, bytes]:
    """The files of a bundle, by name; `tensors` are those of the checkpoint."""
    export = Export(subject.policy, subject.spec, rows=rows, tell=tell)
    checked = {form: export.write(form) for form in FILES}
    files = {FILES[form]: each.written.data for form, each in checked.items()}
    quantized = None
    if int8:
        episodes = subject.report.summary.n
        files[INT8], quantized = export.quantize(checked["onnx"].written, episodes=episodes)
    parities = {form: each.parity for form, each in checked.items()}
    return assembled(subject, tensors, described(subject, export.graph, parities, quantized), files)


def assembled(
    subject: ExportSubject,
    tensors: Mapping[str, NDArray[Any]],
    policy: PolicyDocument,
    graphs: Mapping[str, bytes],
) -> dict[str, bytes]:
    """All files of a bundle, the graphs among them. Its document has the digests of the others."""
    document = Document(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        policies={bundles.POLICY: policy},
        lineage=dict(subject.lineage),
        digests={},
    )
    own = {name: np.array(t) for name, t in tensors.items() if name.startswith(TENSOR_PREFIX)}
    spec, report = _shared(subject.spec), subject.report
    files = {
        **graphs,
        bundles.WEIGHTS: encode_tensors(own),
        bundles.SPEC: yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False).encode(),
        bundles.REPORT: _json({report.policy: json.loads(report.model_dump_json())}),
        bundles.CARD: card(document, spec, report).encode(),
    }
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    final = document.model_copy(update={"digests": digests})
    return files | {bundles.DOCUMENT: _json(json.loads(final.model_dump_json()))}


def described(
    subject: ExportSubject,
    graph: PolicyGraph,
    parities: dict[str, GraphParity],
    int8: Quantized | None = None,
) -> PolicyDocument:
    """What a bundle says of its policy; `parities` are how near each format of its graph comes."""
    policy, spec = subject.policy, subject.spec
    return PolicyDocument(
        algorithm=spec.agent.algorithm,
        env_id=spec.env.id,
        observation_space=space_json.to_json(policy.observation_space),
        action_space=space_json.to_json(policy.action_space),
        stack_frames=spec.obs.stack_frames,
        inputs=graph.inputs,
        outputs=graph.outputs,
        state=tuple(port.name for port in graph.state),
        normalizer=_normalizer(policy, spec),
        action=_action(policy, graph),
        files={form: FILES[form] for form in parities} | ({} if int8 is None else {"int8": INT8}),
        parity=parities,
        int8=int8,
    )


def _shared(spec: Spec) -> Spec:
    """The spec as others may have it: options of trackers can hold what is their user's alone."""
    return spec.changed({"store.trackers": tuple(each.name for each in spec.store.chosen_trackers)})


def _normalizer(policy: PolicyModule, spec: Spec) -> dict[str, Any] | None:
    """Means and deviations by observation, and where they are clipped; None where neither is."""
    running = normalizers_of(policy.pipeline).items()
    counted = [(name, module) for name, module in running if module.count.item() > 0]
    if not counted and spec.obs.clip_range is None:
        return None
    return {
        "observations": {
            name: {"mean": module.mean.tolist(), "deviation": module.deviation().tolist()}
            for name, module in counted
        },
        "clip_range": spec.obs.clip_range,
    }


def _action(policy: PolicyModule, graph: PolicyGraph) -> dict[str, Any]:
    """What becomes of the network's outputs, in a word and a sentence."""
    if isinstance(policy.action_space, spaces.MultiBinary):
        return {"kind": "coins", "how": "1 where a score is above 0"}
    if graph.discrete:
        return {"kind": "choices", "how": "the greatest score, counted from the space's start"}
    if graph.head.squashed:
        return {"kind": "stretched", "how": "from [-1, 1] to the bounds of the space"}
    return {"kind": "clipped", "how": "to the bounds of the space"}


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()

"""The model card of a bundle: what the Hugging Face hub reads, what people read, and the lines
that load the policy and act, without this package."""

import json
from collections.abc import Sequence
from typing import Any

import yaml

from rl_orch.io.policies.bundles import INT8, ONNX, Document, PolicyDocument, Port
from rl_orch.records import EvalReport
from rl_orch.rl.envs import space_json
from rl_orch.rl.envs.observations import leaf_keys
from rl_orch.spec.model import Spec

LIBRARY = "rl-orch"
TASK = "reinforcement-learning"
ACTION = "action"
FILES = (
    "## Files\n\n`policy.onnx`, `policy.ts` (TorchScript) and `policy.pt2` (torch.export) are "
    "the same graph; `policy.safetensors` has the weights, `spec.yaml` all options, "
    "`report.json` every episode of the evaluation, `bundle.json` the spaces, inputs and "
    "outputs, `MANIFEST.json` the digest of each file. ONNX and safetensors run no code "
    "when they are loaded; load the other two only if you trust whoever made them."
)


def card(document: Document, spec: Spec, report: EvalReport) -> str:
    """The card as Markdown, with the front matter in YAML."""
    policy = next(iter(document.policies.values()))
    options = spec.model_dump(mode="json", include={"env", "obs", "feature", "agent", "train"})
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(spec, report), sort_keys=False)}---",
        f"# {spec.algorithm_title} on {spec.env.id}",
        _results(report),
        "## Load and act\n\nWith NumPy and onnxruntime alone, in the folder of this file:",
        f"```python\n{loading(policy)}\n```",
        _ports(policy.inputs, policy.outputs),
        _parity(policy),
        _lineage(document.lineage),
        f"## Spec\n\n```yaml\n{yaml.safe_dump(options, sort_keys=False)}```",
        FILES,
    ]
    return "\n\n".join(parts) + "\n"


def loading(policy: PolicyDocument) -> str:
    """The lines that load the ONNX graph and define `act`, which takes what the environment gives:
    Dict and Tuple observations as they are, and the mask from its infos."""
    inputs = policy.inputs
    state = [port for port in inputs if port.name.startswith("state.")]
    masked = any(port.name == "mask" for port in inputs)
    arguments = ["observation", *(["mask"] if masked else []), *(["first"] if state else [])]
    names = [ACTION, *(f"{port.name}.next" for port in state)]
    feeds = _feeds(policy)
    zeros = ", ".join(
        f'{json.dumps(port.name)}: np.zeros({(1, *port.shape)}, "{port.dtype}")' for port in state
    )
    lines = [
        "import numpy as np, onnxruntime",
        f'session = onnxruntime.InferenceSession("{ONNX}")',
        *([f"state = {{{zeros}}}"] if state else []),
        f"def act({', '.join(arguments)}):",
    ]
    if state:
        lines += [
            f"    action, *kept = session.run({_quoted(names)}, {{{feeds}, **state}})",
            "    return state.update(zip(state, kept)) or action[0]",
        ]
    else:
        lines.append(f"    return session.run({_quoted(names)}, {{{feeds}}})[0][0]")
    return "\n".join(lines)


def _feeds(policy: PolicyDocument) -> str:
    """What goes into the graph for one row, as the items of a dict."""
    keys = leaf_keys(space_json.from_json(policy.observation_space))
    items = []
    for port in policy.inputs:
        kind, _, part = port.name.partition(".")
        if kind == "state":
            continue
        source = kind + "".join(f"[{json.dumps(key)}]" for key in keys.get(part, ()))
        if kind == "mask" and policy.action_space["kind"] == "MultiDiscrete":
            source = "np.hstack(mask)"  # One for all choices, or one for each.
        items.append(f'{json.dumps(port.name)}: np.array([{source}], "{port.dtype}")')
    return ", ".join(items)


def _quoted(names: Sequence[str]) -> str:
    return "[" + ", ".join(map(json.dumps, names)) + "]"


def _front_matter(spec: Spec, report: EvalReport) -> dict[str, Any]:
    summary = report.summary
    result = {
        "task": {"type": TASK, "name": TASK},
        "dataset": {"name": spec.env.id, "type": spec.env.id},
        "metrics": [
            {
                "type": "mean_reward",
                "value": f"{summary.mean:.2f} +/- {summary.std:.2f}",
                "name": "mean_reward",
                "verified": False,
            }
        ],
    }
    algorithm = spec.agent.algorithm
    return {
        "library_name": LIBRARY,
        "pipeline_tag": TASK,
        "tags": [spec.env.id, algorithm, "deep-reinforcement-learning", TASK, "onnx", LIBRARY],
        "model-index": [{"name": f"{algorithm}-{spec.env.id}", "results": [result]}],
    }


def _results(report: EvalReport) -> str:
    summary, (low, high) = report.summary, report.summary.ci95
    how = "greedy actions" if report.deterministic else "sampled actions"
    return (
        f"Return {summary.mean:.2f} ± {summary.std:.2f} (mean and deviation over {summary.n} "
        f"{summary.unit}, {how}); the mean lies in [{low:.2f}, {high:.2f}] with 95 % confidence; "
        f"interquartile mean {summary.iqm:.2f}. The policy was saved at step {report.step:,}, and "
        f"evaluated on episodes that training never saw (seed {report.seed})."
    )


def _ports(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    stateful = any(port.name.startswith("state.") for port in inputs)
    rows = [
        f"| {way} | `{port.name}` | {port.dtype} | {['batch', *port.shape]} |".replace("'", "")
        for way, ports in (("in", inputs), ("out", outputs))
        for port in ports
    ]
    table = "\n".join(["| | name | type | shape |", "|---|---|---|---|", *rows])
    text = (
        "Observations go in as the environment gives them; normalisation, frame stacking and what "
        "is done with actions are inside. Any batch size will do."
    )
    if stateful:
        text += (
            " `first` is true where an episode begins. What comes out as `state.*.next` goes in as "
            "`state.*` at the next step; before the first one, zeros do."
        )
    return f"{text}\n\n{table}"


def _parity(policy: PolicyDocument) -> str:
    rows = [
        f"| {form} | {parity.largest_difference:.1e} | {parity.differing} | {parity.rows:,} |"
        for form, parity in policy.parity.items()
    ]
    head = [
        "## Checked against torch",
        "",
        "| graph | largest difference | other greedy actions | rows |",
        "|---|---|---|---|",
    ]
    text = "\n".join([*head, *rows])
    if policy.int8 is None:
        return text
    int8 = policy.int8
    return (
        f"{text}\n\n`{INT8}` has weights of 8 bits: {int8.bytes_after:,} bytes instead of "
        f"{int8.bytes_before:,}. Mean return {int8.mean_before:.2f} before and "
        f"{int8.mean_after:.2f} after, on the same {int8.n} episodes, one row at a time. In a "
        "larger batch its actions depend a little on the other rows."
    )


def _lineage(lineage: dict[str, Any]) -> str:
    rows = [f"- {name.replace('_', ' ')}: `{value}`" for name, value in lineage.items() if value]
    return "## Where it comes from\n\n" + "\n".join(rows or ["- not known"])

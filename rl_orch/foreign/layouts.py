"""Names of a policy's tensors in Stable-Baselines3, in CleanRL and here: from their names to ours.

A tensor that is neither taken nor known to be of no use to acting is refused: whatever it does, the
policy would act differently without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rl_orch.errors import BadInput
from rl_orch.foreign.perceptrons import Array, Stack, numbered, side_by_side, stack

HIDDEN = "agent.network.hidden_sizes"
ACTIVATION = "agent.network.activation"
ACTOR_CRITIC = ("ppo", "a2c")
SQUASHED = ("sac", "tqc")
"""Their policies are alike; only critics tell them apart."""


@dataclass(frozen=True, slots=True)
class Told:
    """Facts besides tensors: the algorithm, if somebody has said it, and quantiles."""

    algorithm: str | None = None
    quantiles: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """Tensors under our names, the options that go with them, and what is worth knowing.

    `used` are the names that they had. `scale` and `bias` are how actions in [-1, 1] were
    stretched, where a file says so.
    """

    algorithm: str
    tensors: dict[str, Array]
    used: set[str]
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scale: Array | None = None
    bias: Array | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to name things: the tensors that tell it, and the beginnings of names that acting
    does without."""

    name: str
    marks: tuple[str, ...]
    place: Callable[[Mapping[str, Array], Told], Placed]
    spared: tuple[str, ...] = ()


def placed(tensors: Mapping[str, Array], told: Told, what: str) -> tuple[str, Placed]:
    """The name of the layout that tensors have, and the tensors under our names."""
    for layout in LAYOUTS:
        if not all(any(name.startswith(mark) for name in tensors) for mark in layout.marks):
            continue
        found = layout.place(tensors, told)
        left = sorted(set(tensors) - found.used)
        left = [name for name in left if not name.startswith(layout.spared or ("\0",))]
        if left:
            raise BadInput(
                f"{what} has {left[0]}, of shape {list(tensors[left[0]].shape)}, which is no part "
                f"of a perceptron as {layout.name} names it",
                hint="Policies whose networks are perceptrons can be imported (MlpPolicy).",
            )
        return layout.name, found
    names = ", ".join(sorted(tensors)[:6])
    raise BadInput(
        f"{what} has tensors that are named as nobody names them who is known here: {names}",
        hint="Rename them to 0.weight, 0.bias, 2.weight, …, and say --algo.",
    )


def _sb3_actor_critic(tensors: Mapping[str, Array], told: Told) -> Placed:
    actor = stack(tensors, "mlp_extractor.policy_net.", "action_net")
    critic = stack(tensors, "mlp_extractor.value_net.", "value_net")
    log_std = tensors.get("log_std")
    if log_std is not None and log_std.ndim != 1:
        raise BadInput(
            f"log_std has the shape {list(log_std.shape)}: the policy explores by gSDE, which is "
            "known of SAC alone",
        )
    return _actor_critic(actor, critic, "log_std" if log_std is not None else None, tensors, told)


def _actor_critic(
    actor: Stack,
    critic: Stack | None,
    log_std: str | None,
    tensors: Mapping[str, Array],
    told: Told,
) -> Placed:
    found, notes, used = actor.under("actor"), [], set(actor.names)
    if critic is not None:
        used |= critic.names
        if critic.hidden == actor.hidden:
            found |= critic.under("critic")
        else:
            notes.append(
                f"the value function is not taken over: its layers are {critic.hidden}, the "
                f"policy's are {actor.hidden}"
            )
    if log_std is not None:
        found["log_std"] = tensors[log_std].reshape(-1)
        used.add(log_std)
    algorithm = _among(told, ACTOR_CRITIC)
    options = {HIDDEN: actor.hidden, ACTIVATION: "tanh"}
    return Placed(algorithm, found, used, options, tuple(notes))


def _sb3_q(tensors: Mapping[str, Array], told: Told) -> Placed:
    return _values(stack(tensors, "q_net.q_net."), told)


def _values(found: Stack, told: Told) -> Placed:
    algorithm = _among(told, ("dqn", "qrdqn"))
    options: dict[str, Any] = {HIDDEN: found.hidden, ACTIVATION: "relu"}
    if algorithm == "qrdqn" and told.quantiles is not None:
        options["train.n_quantiles"] = told.quantiles
    return Placed(algorithm, found.under("network.head"), found.names, options)


def _sb3_quantiles(tensors: Mapping[str, Array], told: Told) -> Placed:
    """The quantile network of SB3, its rows in our order. SB3's rows go through the actions of one
    quantile after another, ours through the quantiles of one action after another."""
    found, count = stack(tensors, "quantile_net.quantile_net."), told.quantiles
    last = len(found.layers) - 1
    outputs = len(found.layers[last].weight)
    if count is None or outputs % count:
        raise BadInput(
            f"{found.layers[last].name} gives {outputs} numbers; how many quantiles of each action "
            f"that is cannot be told: n_quantiles is {count}"
        )
    order = np.arange(outputs).reshape(count, outputs // count).T.reshape(-1)
    placed_ = _values(found, Told("qrdqn", count))
    for part in ("weight", "bias"):
        name = f"network.head.layers.{last}.{part}"
        placed_.tensors[name] = placed_.tensors[name][order]
    return placed_


def _sb3_squashed(tensors: Mapping[str, Array], told: Told) -> Placed:
    hidden = "actor.latent_pi."
    explores = "actor.log_std" in tensors
    mean = stack(tensors, hidden, "actor.mu.0" if explores else "actor.mu")
    trunk, head = Stack(mean.layers[:-1]), mean.layers[-1]
    options: dict[str, Any] = {HIDDEN: mean.hidden, ACTIVATION: "relu"}
    if explores:
        more, used = {"log_std": tensors["actor.log_std"]}, {"actor.log_std"}
        options["train.use_sde"] = True
    else:
        deviation = stack(tensors, hidden, "actor.log_std")
        head, more, used = side_by_side(head, deviation.layers[-1]), {}, deviation.names
    norms, normalized = _norms(tensors, hidden, len(trunk.layers))
    found = trunk.under("trunk") | Stack((head,)).under("head") | norms | more
    algorithm = _among(told, ("crossq",) if norms else _by_critics(tensors))
    return Placed(algorithm, found, mean.names | used | normalized, options, (CRITICS,))


def _by_critics(tensors: Mapping[str, Array]) -> tuple[str, ...]:
    """The algorithms that a squashed policy can be of: critics of TQC give several quantiles."""
    critics = numbered(tensors, "critic.qf0.")
    quantiles = bool(critics) and len(tensors[f"{critics[-1]}.weight"]) > 1
    return ("tqc",) if quantiles else SQUASHED


def _norms(
    tensors: Mapping[str, Array], place: str, layers: int
) -> tuple[dict[str, Array], set[str]]:
    """Statistics of the batch renormalisation before each layer and behind the last one, and their
    names in SB3; nothing if it has none."""
    names = numbered(tensors, place, "scale")
    if names and len(names) != layers + 1:
        raise BadInput(
            f"{len(names)} of the layers under {place} normalise; must be {layers + 1}: one before "
            "each of the others, and one behind the last",
        )
    found, used = {}, set()
    for number, name in enumerate(names):
        for theirs, ours in NORM.items():
            if f"{name}.{theirs}" not in tensors:
                raise BadInput(f"there is no {name}.{theirs}; must be in a layer that normalises")
            found[f"trunk.norms.{number}.{ours}"] = tensors[f"{name}.{theirs}"]
            used.add(f"{name}.{theirs}")
    return found, used


def _sb3_deterministic(tensors: Mapping[str, Array], told: Told) -> Placed:
    return _deterministic(stack(tensors, "actor.mu."), told)


def _deterministic(found: Stack, told: Told) -> Placed:
    options = {HIDDEN: found.hidden, ACTIVATION: "relu"}
    algorithm, tensors = _among(told, ("td3",)), found.under("actor.net")
    return Placed(algorithm, tensors, found.names, options, (CRITICS,))


def _cleanrl_actor_critic(tensors: Mapping[str, Array], told: Told) -> Placed:
    return _actor_critic(stack(tensors, "actor."), stack(tensors, "critic."), None, tensors, told)


def _cleanrl_gaussian(tensors: Mapping[str, Array], told: Told) -> Placed:
    actor, critic = stack(tensors, "actor_mean."), stack(tensors, "critic.")
    found = _actor_critic(actor, critic, "actor_logstd", tensors, told)
    return replace(found, notes=(*found.notes, UNNORMALIZED))


def _cleanrl_q(tensors: Mapping[str, Array], told: Told) -> Placed:
    return _values(stack(tensors, "network."), told)


def _cleanrl_squashed(tensors: Mapping[str, Array], told: Told) -> Placed:
    mean = stack(tensors, "fc1", "fc2", "fc_mean")
    deviation = stack(tensors, "fc1", "fc2", "fc_logstd")
    head = side_by_side(mean.layers[-1], deviation.layers[-1])
    found = Stack(mean.layers[:-1]).under("trunk") | Stack((head,)).under("head")
    options = {HIDDEN: mean.hidden, ACTIVATION: "relu"}
    used = mean.names | deviation.names
    note = "greedy actions are CleanRL's; drawn ones are not, since it squashes log deviations"
    notes = (CRITICS, note)
    placed_ = Placed(_among(told, ("sac",)), found, used, options, notes)
    return _with_bounds(placed_, tensors)


def _cleanrl_deterministic(tensors: Mapping[str, Array], told: Told) -> Placed:
    return _with_bounds(_deterministic(stack(tensors, "fc1", "fc2", "fc_mu"), told), tensors)


def _with_bounds(found: Placed, tensors: Mapping[str, Array]) -> Placed:
    scale, bias = (tensors.get(name) for name in ("action_scale", "action_bias"))
    used = found.used | {"action_scale", "action_bias"}
    return replace(found, used=used, scale=scale, bias=bias)


def _sequential(tensors: Mapping[str, Array], told: Told) -> Placed:
    """One stack of layers, which is the policy: what its outputs mean, the algorithm says."""
    found = stack(tensors, "")
    if told.algorithm in ACTOR_CRITIC:
        return _actor_critic(found, None, None, tensors, told)
    if told.algorithm in ("dqn", "qrdqn"):
        return _values(found, told)
    if told.algorithm == "td3":
        return _deterministic(found, told)
    if told.algorithm in SQUASHED:
        trunk, head = Stack(found.layers[:-1]), Stack(found.layers[-1:])
        options = {HIDDEN: found.hidden, ACTIVATION: "relu"}
        both = trunk.under("trunk") | head.under("head")
        return Placed(told.algorithm, both, found.names, options, (CRITICS, ASSUMED))
    given = "is missing" if told.algorithm is None else f"is {told.algorithm!r}"
    raise BadInput(
        f"layers that are only numbered do not say what they are of: --algo {given}; "
        f"must be one of {', '.join(ALGORITHMS)}",
        path="algo",
        hint="For example: --algo dqn",
    )


def _ours(tensors: Mapping[str, Array], told: Told) -> Placed:
    """Our own names; what options tell of a network is worked back from them."""
    body, possible = next((at, of) for at, of in OURS.items() if any(map(_under(at), tensors)))
    hidden = stack(tensors, f"{body}layers.").hidden
    if body == "head.":
        hidden = [len(layer.weight) for layer in stack(tensors, "trunk.layers.").layers]
    options: dict[str, Any] = {HIDDEN: hidden}
    if body == "actor." and any(map(_under("trunk.layers."), tensors)):
        shared = [len(layer.weight) for layer in stack(tensors, "trunk.layers.").layers]
        options |= {HIDDEN: shared, "agent.network.shared": True}
    if any(map(_under("network.body."), tensors)):
        before = [len(layer.weight) for layer in stack(tensors, "network.body.layers.").layers]
        options |= {HIDDEN: before + hidden, "agent.network.dueling": True}
    if body == "head." and "log_std" in tensors:
        options["train.use_sde"] = True
    if any(map(_under("trunk.norms."), tensors)):
        possible = ("crossq",)
    if any(map(_under("pipeline.normalizer."), tensors)):
        options["obs.normalize"] = "running"
    return Placed(_among(told, possible), dict(tensors), set(tensors), options, (ASSUMED,))


def _under(prefix: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefix)


def _among(told: Told, possible: tuple[str, ...]) -> str:
    """The algorithm: the one that was said, if tensors can be of it; else the first."""
    if told.algorithm is None:
        return possible[0]
    if told.algorithm not in possible:
        raise BadInput(
            f"--algo is {told.algorithm!r}, but the tensors are those of {' or '.join(possible)}",
            path="algo",
            hint="Leave it out.",
        )
    return told.algorithm


ALGORITHMS = ("ppo", "a2c", "dqn", "qrdqn", *SQUASHED, "td3")
NORM = {
    "scale": "weight",
    "bias": "bias",
    "ra_mean": "mean",
    "ra_var": "variance",
    "steps": "batches",
}
"""What a layer that normalises has in sb3-contrib → what it has here."""
CRITICS = "critics are not taken over: the policy can act, and not be trained further"
UNNORMALIZED = (
    "CleanRL normalises observations here, and saves no statistics: --normalizer has them"
)
ASSUMED = (
    "the activation is not in the file; agent.network.activation says another than the usual one"
)
OURS = {
    "actor.net.": ("td3",),
    "actor.": ACTOR_CRITIC,
    "network.head.": ("dqn", "qrdqn"),
    "head.": SQUASHED,
}
"""Where the last layers of a policy of ours are → which algorithms have it there."""

SB3, CLEANRL = "Stable-Baselines3", "CleanRL"

LAYOUTS = (
    Layout(SB3, ("action_net.", "value_net."), _sb3_actor_critic),
    Layout(SB3, ("quantile_net.quantile_net.",), _sb3_quantiles, ("quantile_net_target.",)),
    Layout(SB3, ("q_net.q_net.",), _sb3_q, ("q_net_target.",)),
    Layout(SB3, ("actor.mu.", "actor.log_std"), _sb3_squashed, ("critic.", "critic_target.")),
    Layout(
        SB3, ("actor.mu.0.",), _sb3_deterministic, ("actor_target.", "critic.", "critic_target.")
    ),
    Layout(CLEANRL, ("actor_mean.", "actor_logstd", "critic."), _cleanrl_gaussian),
    Layout(CLEANRL, ("actor.0.", "critic.0."), _cleanrl_actor_critic),
    Layout(CLEANRL, ("network.0.",), _cleanrl_q),
    Layout(CLEANRL, ("fc1.", "fc_mean.", "fc_logstd."), _cleanrl_squashed),
    Layout(CLEANRL, ("fc1.", "fc_mu."), _cleanrl_deterministic),
    *(Layout("rl-orch", (f"{body}layers.",), _ours) for body in OURS),
    Layout("torch.nn.Sequential", ("0.weight",), _sequential),
)
"""Those that are told by more come before those that are told by less."""

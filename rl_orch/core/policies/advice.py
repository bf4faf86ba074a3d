"""Advice that would make a training faster, decided from where its time goes. Pure.

Only what holds for this package is said, and what only a measurement can tell is left to one: most
pieces of advice come with a change to profile again with.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rl_orch.errors import BadInput
from rl_orch.records.profile import Profile
from rl_orch.spec.kernel_requirements import kernel_requirements
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

LARGE_MINIBATCH = 256
MANY_COPIES = 32
SHARED_OUT = ("sac", "td3", "tqc")
"""Algorithms whose updates in kernels two threads can share."""

WIDE_LAYER = 128
LARGE_ROLLOUT = 32
LONG_STEP_MS = 1.0
"""What stepping a copy must take for it to be worth a process of its own."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence, and the overrides to try it with, if there are any."""

    text: str
    change: str | None = None


def advise(spec: Spec, profile: Profile, *, cores: int, gpus: int) -> list[Advice]:
    """Changes to a spec with nothing left open, what helps most first.

    None where nothing is known that would help.
    """
    return [
        advice
        for advice in (
            *_engine(spec, profile),
            *_stepping(spec, profile, cores),
            *_copies(spec, profile),
            *_minibatch(spec, profile),
            *_buffer(spec, profile),
            *_turns(spec, profile),
            *_threads(spec, profile, cores),
            *_overlap(spec, profile, cores),
            *_gpu(spec, profile, gpus),
            *_updates(spec, profile),
        )
        if advice.change is None or _possible(spec, advice.change)
    ]


def _engine(spec: Spec, profile: Profile) -> Iterator[Advice]:
    """Kernels, where they are not used and could be."""
    share = profile.share("learner", "policy")
    if profile.engine.value == "kernels" or share < 0.2:
        return
    start = f"Deciding and learning take {_percent(share)}, in torch"
    if profile.engine.why_not is None:
        yield Advice(f"{start}, though kernels can train this.", "train.engine=kernels")
    elif profile.engine.mendable and (needed := kernel_requirements(spec)):
        change = " ".join(f"{path}={_text(value)}" for path, value in needed.items())
        yield Advice(
            f"{start}, because {profile.engine.why_not}; kernels could train it otherwise.",
            f"{change} train.engine=kernels",
        )


def _stepping(spec: Spec, profile: Profile, cores: int) -> Iterator[Advice]:
    """Another way to step the environment, where stepping takes long."""
    share, ms = profile.share("env"), profile.ms_per_1000_steps("env") / 1000
    start = f"Stepping takes {_percent(share)}, {ms:.2g} ms a step"
    backend = profile.backend.value
    if backend != "native" and profile.backend.why_not is None and share >= 0.1:
        yield Advice(f"{start}, though kernels can step {spec.env.id}.", "env.backend=native")
        return
    if share >= 0.5:
        for name in profile.at_once:
            yield Advice(
                f"{start}; {name} steps all copies at once, and plays episodes of its own.",
                f"env.backend={name}",
            )
    if backend == "async" and share >= 0.3:
        yield Advice(
            f"{start}, the exchange with a process for each copy included.", "env.backend=sync"
        )
    elif backend == "sync" and share >= 0.5:
        if ms >= LONG_STEP_MS and spec.env.num_envs > 1 and cores > 1:
            yield Advice(
                f"{start}, one copy after another; there are {cores} cores.", "env.backend=async"
            )
        elif not profile.at_once:
            yield Advice(
                f"{start}, one copy after another: more copies do not speed it up, nor does async "
                "where steps are short. A faster environment does, or one that steps all copies at "
                "once, as a plugin of kind vector_envs."
            )


def _copies(spec: Spec, profile: Profile) -> Iterator[Advice]:
    """More copies, where deciding for one takes as long as for many."""
    share, copies = profile.share("policy"), spec.env.num_envs
    if share < 0.25 or profile.apart or copies >= MANY_COPIES or "buffer" in profile.parts:
        return
    yield Advice(
        f"Deciding takes {_percent(share)}: one decision for {copies} "
        f"{'copy' if copies == 1 else 'copies'} takes about as long as one for {4 * copies}. "
        "Rollouts grow with the copies.",
        f"env.num_envs={4 * copies}",
    )


def _minibatch(spec: Spec, profile: Profile) -> Iterator[Advice]:
    """Larger minibatches, where each of them costs the overhead of torch."""
    share, size = profile.share("learner"), spec.train.batch_size
    if spec.agent.algorithm != "ppo" or profile.engine.value != "torch" or share < 0.5:
        return
    larger = min(4 * size, spec.rollout_size)
    if size < LARGE_MINIBATCH and larger > size:
        yield Advice(
            f"Learning takes {_percent(share)}: a minibatch of {size} costs torch about as much "
            "as a larger one. What is learned changes with it.",
            f"train.batch_size={larger}",
        )


def _buffer(spec: Spec, profile: Profile) -> Iterator[Advice]:
    """Drawing uniformly, where drawing by priority takes long."""
    share = profile.share("buffer")
    if spec.buffer.prioritized and share >= 0.25:
        yield Advice(
            f"The replay buffer takes {_percent(share)}: drawing by priority takes longer than "
            "drawing uniformly.",
            "buffer.prioritized=false",
        )


def _turns(spec: Spec, profile: Profile) -> Iterator[Advice]:
    """As many updates in fewer turns, where each turn costs bookkeeping."""
    share, steps, updates = profile.share("other"), spec.rollout.steps, spec.train.gradient_steps
    if share < 0.15 or "buffer" not in profile.parts or spec.rollout_size >= LARGE_ROLLOUT:
        return
    change = f"rollout.steps={10 * steps}"
    if updates > 0:
        change += f" train.gradient_steps={10 * updates}"
    yield Advice(
        f"Bookkeeping takes {_percent(share)}, as it follows every {spec.rollout_size} steps. "
        "Larger rollouts with as many updates need less of it; the policy is then renewed less "
        "often.",
        change,
    )


def _threads(spec: Spec, profile: Profile, cores: int) -> Iterator[Advice]:
    """Another number of threads, where matrices are large, or there are more than one needs."""
    share, threads = profile.share("learner"), spec.resources.threads
    widest = max(spec.agent.network.hidden_sizes, default=0)
    if share < 0.5 or spec.resources.device != "cpu":
        return
    if profile.engine.value == "kernels" and spec.agent.algorithm not in SHARED_OUT:
        return
    if threads > 1 and widest < WIDE_LAYER and not _sees_images(profile):
        yield Advice(
            f"Learning takes {_percent(share)}, with {threads} threads; small networks are often "
            "faster with one.",
            "resources.threads=1",
        )
    elif threads == 1 and cores > 1 and (widest >= WIDE_LAYER or _sees_images(profile)):
        yield Advice(
            f"Learning takes {_percent(share)}, with one thread of {cores} cores; large networks "
            "are often faster with more.",
            "resources.threads=2",
        )


def _overlap(spec: Spec, profile: Profile, cores: int) -> Iterator[Advice]:
    """Collecting while learning, where both take long."""
    learning = profile.share("learner")
    collecting = profile.share("env", "policy", "other")
    if spec.rollout.overlap or cores < 2 or min(learning, collecting) < 0.2:
        return
    faster = 1 / max(learning, collecting)
    yield Advice(
        f"Collecting takes {_percent(collecting)}, learning {_percent(learning)}. Both can go on "
        f"at once, at best {faster:.1f} times as fast; actions are then those of the policy "
        "before its last update.",
        "rollout.overlap=true",
    )


def _gpu(spec: Spec, profile: Profile, gpus: int) -> Iterator[Advice]:
    """A GPU that nobody uses, where there is enough for it to do."""
    share = profile.share("learner")
    if gpus and spec.resources.device == "cpu" and share >= 0.5 and _sees_images(profile):
        yield Advice(f"Learning takes {_percent(share)}; there is a GPU.", "resources.device=cuda")


def _updates(spec: Spec, profile: Profile) -> Iterator[Advice]:
    """Fewer updates, where they take nearly all: a choice, not a gain."""
    share, train = profile.share("learner", "buffer"), spec.train
    if share < 0.7:
        return
    buffered = ", with the buffer," if "buffer" in profile.parts else ""
    start = f"Learning{buffered} takes {_percent(share)}"
    faster = 1 / (1 - share / 2)
    less = f"Half as many: about {faster:.1f} times as fast, and less is learned from each step."
    if spec.agent.algorithm == "ppo" and train.update_epochs > 1:
        yield Advice(
            f"{start}, in {train.update_epochs} passes over each rollout. {less}",
            f"train.update_epochs={train.update_epochs // 2}",
        )
    elif "buffer" in profile.parts and train.gradient_steps > 0:
        count, size = train.gradient_steps, spec.rollout_size
        updates = "1 update" if count == 1 else f"{count} updates"
        steps = "step" if size == 1 else f"{size:,} steps"
        change = f"rollout.steps={2 * spec.rollout.steps}"
        yield Advice(f"{start}, with {updates} every {steps}. {less}", change)


def _sees_images(profile: Profile) -> bool:
    return "image" in profile.observations


def _possible(spec: Spec, change: str) -> bool:
    """Whether the spec may be changed so."""
    try:
        resolve(spec.model_dump(mode="json"), overrides=change.split())
    except BadInput:
        return False
    return True


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _text(value: object) -> str:
    return "null" if value is None else str(value).lower()

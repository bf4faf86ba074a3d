"""`env.wrappers`: how wrappers of an environment are written, and what they come to. Data alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GYMNASIUM = ("gymnasium.wrappers:", "gym.wrappers:")
"""Where those are that are known by their name alone."""

FREE = frozenset({
    "AddRenderObservation", "AddWhiteNoise", "AtariPreprocessing", "Autoreset", "ClipAction",
    "ClipReward", "DelayObservation", "DiscretizeAction", "DiscretizeObservation",
    "DtypeObservation", "FilterObservation", "FlattenObservation", "FrameStackObservation",
    "GrayscaleObservation", "JaxToNumpy", "JaxToTorch", "MaxAndSkipObservation",
    "NormalizeObservation", "NormalizeReward", "NumpyToTorch", "ObstructView", "OrderEnforcing",
    "PassiveEnvChecker", "RecordEpisodeStatistics", "RenderCollection", "RepeatAction",
    "RescaleAction", "RescaleObservation", "ReshapeObservation", "ResizeObservation",
    "StickyAction", "TimeAwareObservation", "TimeLimit", "TransformAction", "TransformObservation",
    "TransformReward",
})  # fmt: skip
"""Wrappers of Gymnasium's that touch nothing but the environment: no file, no screen, no module.
All others are code that a spec names, those of a later release too."""

INSTEAD = {
    "stable_baselines3.common.atari_wrappers:AtariWrapper": "Gymnasium's AtariPreprocessing is "
    "nearest, with env.kwargs.frameskip=1; rewards are clipped by train.clip_reward=1.",
}
"""Wrappers of other packages, and what is had here where those are not installed."""

FORM = (
    "a list of up to 100 names, of a class in gymnasium.wrappers or as `module:Class`, or of maps "
    "with `name` and its arguments"
)


@dataclass(frozen=True, slots=True)
class WrapperChoice:
    """A wrapper that a spec names, and its keyword arguments."""

    name: str
    kwargs: Mapping[str, Any]


def wrapper(entry: Any) -> Any:
    """An entry in its one spelling: a name, or a map of `name` and arguments where there are any.

    Also taken are `{Name: {arguments}}` and dotted names, as RL Zoo writes both.
    """
    if isinstance(entry, str):
        return _named(entry)
    if not isinstance(entry, dict):
        return entry
    if "name" not in entry and len(entry) == 1:
        ((name, arguments),) = entry.items()
        if not isinstance(arguments, dict | None):
            raise ValueError("the arguments of a wrapper are not a map")
        entry = {"name": name, **(arguments or {})}
    if not isinstance(entry.get("name"), str):
        raise ValueError("a wrapper without a name")
    named = entry | {"name": _named(entry["name"])}
    return named["name"] if len(named) == 1 else named


def choice(entry: str | Mapping[str, Any]) -> WrapperChoice:
    """A wrapper as the spec holds it, taken apart."""
    if isinstance(entry, str):
        return WrapperChoice(entry, {})
    return WrapperChoice(entry["name"], {key: entry[key] for key in entry if key != "name"})


def _named(name: str) -> str:
    """`module:Class` from `module.Class`; the class alone of Gymnasium's."""
    module, dot, attribute = name.strip().rpartition(".")
    whole = f"{module}:{attribute}" if dot and ":" not in name else name.strip()
    prefix = next((known for known in GYMNASIUM if whole.startswith(known)), "")
    return whole.removeprefix(prefix)

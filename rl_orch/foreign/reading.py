"""Files that are known here → policies under our names, with their options."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as decode_tensors

from rl_orch.errors import BadInput, Damaged
from rl_orch.foreign import layouts, torch_files
from rl_orch.foreign.layouts import ACTIVATION, ASSUMED, SB3, UNNORMALIZED, Placed, Told
from rl_orch.foreign.perceptrons import Array
from rl_orch.io.files import npy
from rl_orch.io.files.zips import Archive

ZIP = b"PK\x03\x04"
EMPTY_ZIP = b"PK\x05\x06"
PICKLES = (b"\x80", b"(", b"c")
"""How pickles begin: by their version, or, very old ones, by an instruction."""

HEADER_BYTES = 16 << 20
JSON_BYTES = 64 << 20
WEIGHTS, DATA = "policy.pth", "data"
PREFIX = "policies/default/"
EXTRACTORS = ("FlattenExtractor", "None")
ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "GELU": "gelu", "SiLU": "silu"}
EXPORT = (
    "In Python: np.savez('stats.npz', mean=venv.obs_rms.mean, var=venv.obs_rms.var); then "
    "--normalizer stats.npz"
)
NORM_EPS = 0.001
"""Of batch renormalisation, here and, unless it is told otherwise, in sb3-contrib."""

CLIPPED_AT = 10.0
"""Where VecNormalize and CleanRL clip what they have normalised, unless they are told otherwise."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as a file holds it: whose names its tensors had, the tensors under ours with the
    options that go with them, and the step that it was saved at, 0 where that is not known."""

    format: str
    placed: Placed
    step: int = 0


def policy(data: bytes, algorithm: str | None, what: str) -> Policy:
    """The policy in the bytes of a file."""
    if data.startswith((ZIP, EMPTY_ZIP)):
        archive = Archive(data, what)
        if WEIGHTS in archive:
            found = _sb3(archive, algorithm)
        elif torch_files.is_torch(archive):
            found = _plain(_actor(torch_files.tensors(archive)), algorithm, what)
        else:
            raise BadInput(
                f"{what} is a zip archive, but has neither {WEIGHTS} of Stable-Baselines3 nor the "
                "data.pkl of torch",
            )
    elif data[8:9] == b"{":
        found = _plain(_safetensors(data, what), algorithm, what)
    else:
        raise _unknown(data, what)
    return replace(found, placed=_finite(found.placed, what))


def normalized(found: Policy, data: bytes, what: str) -> Policy:
    """The policy behind a normaliser of observations, whose mean and variance an .npz file has."""
    if data.startswith(PICKLES) or not data.startswith(ZIP):
        raise BadInput(
            f"{what} is no .npz file; VecNormalize saves a pickle, which is never loaded here",
            path="normalizer",
            hint=EXPORT,
        )
    archive = Archive(data, what)
    mean, variance = (_array(archive, f"{name}.npy") for name in ("mean", "var"))
    if mean.shape != variance.shape:
        raise BadInput(
            f"{what} has a mean of shape {list(mean.shape)} and a var of {list(variance.shape)}; "
            "must be alike",
            hint=EXPORT,
        )
    if not np.isfinite([mean, variance]).all() or (variance < 0).any():
        raise BadInput(
            f"{what} has numbers in mean or var that are not finite, or a var below 0",
            hint=EXPORT,
        )
    tensors = found.placed.tensors | {
        "pipeline.normalizer.mean": mean,
        "pipeline.normalizer.m2": variance,
        "pipeline.normalizer.count": np.ones((), np.float64),
    }
    options = found.placed.options | {
        "obs.normalize": "running",
        "obs.clip_range": [-CLIPPED_AT, CLIPPED_AT],
    }
    notes = tuple(note for note in found.placed.notes if note != UNNORMALIZED)
    placed = replace(found.placed, tensors=tensors, options=options, notes=notes)
    return replace(found, placed=placed)


def _sb3(archive: Archive, algorithm: str | None) -> Policy:
    """A policy that SB3 has saved. Of `data`, whatever is pickled stays as it is: beside it
    stands what it is made of, as text."""
    told = _data(archive)
    weights = Archive(archive.read(WEIGHTS), f"{WEIGHTS} in {archive.what}")
    arguments = told.get("policy_kwargs")
    arguments = arguments if isinstance(arguments, dict) else {}
    extractor = _class(arguments.get("features_extractor_class"))
    if extractor not in EXTRACTORS:
        raise BadInput(
            f"{archive.what} was trained with a features extractor of its own, {extractor}",
            hint="Policies without one can be imported (MlpPolicy).",
        )
    if arguments.get("batch_norm_eps", NORM_EPS) != NORM_EPS:
        raise BadInput(
            f"{archive.what} was trained with batch_norm_eps {arguments['batch_norm_eps']}; "
            f"must be {NORM_EPS}, which every layer here that normalises has"
        )
    quantiles = arguments.get("n_quantiles", told.get("n_quantiles"))
    known = Told(
        algorithm or _sb3_algorithm(told), quantiles if isinstance(quantiles, int) else None
    )
    name, placed = layouts.placed(torch_files.tensors(weights), known, archive.what)
    activation = _class(arguments.get("activation_fn"))
    if activation != "None":
        if activation not in ACTIVATIONS:
            raise BadInput(
                f"{archive.what} was trained with the activation {activation}; "
                f"must be one of {', '.join(ACTIVATIONS)}"
            )
        placed.options[ACTIVATION] = ACTIVATIONS[activation]
    step = told.get("num_timesteps")
    return Policy(name, placed, step if type(step) is int and 0 <= step < 10**12 else 0)


def _data(archive: Archive) -> dict[str, Any]:
    try:
        told = json.loads(archive.read(DATA, most=JSON_BYTES)) if DATA in archive else {}
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{archive.what} cannot be read: {DATA}: {str(error)[:200]}") from None
    if not isinstance(told, dict):
        raise Damaged(f"{archive.what} cannot be read: {DATA} is no JSON object")
    return told


def _sb3_algorithm(told: Mapping[str, Any]) -> str | None:
    """PPO and A2C have the same tensors, but other options; the rest tell themselves."""
    if "gae_lambda" not in told:
        return None
    return "ppo" if "n_epochs" in told else "a2c"


def _class(told: object) -> str:
    """The last part of the name in `<class 'torch.nn.modules.activation.ReLU'>`."""
    match = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>", str(told))
    return match[1] if match else str(told)[:100]


def _plain(tensors: Mapping[str, Array], algorithm: str | None, what: str) -> Policy:
    """A state dict by itself; of a checkpoint of ours, the policy's part."""
    own = {name: tensors[name] for name in tensors if name.startswith(PREFIX)}
    if own:
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in own.items()}
    name, placed = layouts.placed(tensors, Told(algorithm), what)
    if name == SB3:  # Without the rest of its archive.
        placed = replace(placed, notes=(*placed.notes, ASSUMED))
    return Policy(name, placed)


def _actor(tensors: dict[str, Array]) -> dict[str, Array]:
    """The actor of CleanRL's state dicts, which comes first; the others are its critics."""
    if "0.fc1.weight" not in tensors:
        return tensors
    return {name[2:]: tensor for name, tensor in tensors.items() if name.startswith("0.")}


def _safetensors(data: bytes, what: str) -> dict[str, Array]:
    size = int.from_bytes(data[:8], "little")
    if size > min(HEADER_BYTES, len(data)):
        raise Damaged(f"{what} is no whole safetensors file: its header would take {size:,} bytes")
    try:
        return dict(decode_tensors(data))
    # The library's own error, and what NumPy says to types that it does not have.
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged(f"{what} is no whole safetensors file: {str(error)[:200]}") from None


def _array(archive: Archive, name: str) -> Array:
    """An array of an .npz file; one that would have to be unpickled is refused."""
    try:
        return np.array(npy.array(archive.read(name, most=HEADER_BYTES)), np.float64)
    except (ValueError, TypeError, EOFError, MemoryError) as error:
        raise BadInput(f"{archive.what} cannot be read: {name}: {str(error)[:200]}") from None


def _finite(placed: Placed, what: str) -> Placed:
    """All numbers in the types that we have, each of them a number."""
    tensors = {}
    for name, tensor in placed.tensors.items():
        kept = np.float64 if name.startswith("pipeline.") else np.float32
        try:
            tensors[name] = np.ascontiguousarray(tensor, kept).reshape(tensor.shape)
        except (TypeError, ValueError):
            raise BadInput(f"{what} has {tensor.dtype} in {name}, which are no weights") from None
        if not np.isfinite(tensors[name]).all():
            raise BadInput(
                f"{what} has numbers that are not finite: {name}",
                hint="The training had diverged when it was saved; import an earlier file.",
            )
    return replace(placed, tensors=tensors)


def _unknown(data: bytes, what: str) -> BadInput:
    if data.startswith(PICKLES):
        return BadInput(
            f"{what} is a pickle, as torch wrote before 1.6: to load it is to run it",
            hint="If you trust it: torch.save(torch.load(FILE, weights_only=True), 'policy.pt').",
        )
    return BadInput(
        f"{what} is none of: a zip of Stable-Baselines3, a model of CleanRL, a state dict of "
        "torch.save, safetensors",
    )

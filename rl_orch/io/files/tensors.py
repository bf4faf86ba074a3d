"""Tensors as bytes in the safetensors format, and back."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rl_orch.io.files import sealed

_HEADER_BYTES = 16 << 20


def encode(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Tensors by name, as bytes."""
    if "__metadata__" in tensors:
        raise ValueError("a tensor cannot be named __metadata__: the format reserves that name")
    try:
        data: bytes = save({name: np.asarray(t, order="C") for name, t in tensors.items()})
    except SafetensorError as error:
        raise ValueError(f"the tensors cannot be stored: {error}") from error
    _check_header(data)
    return data


def decode(data: bytes, path: Path, name: str, *, noun: str) -> dict[str, np.ndarray]:
    """The tensors in a file of that name; its sealed directory is a `noun`."""
    try:
        _check_header(data)
        return dict(load(data))
    except (SafetensorError, KeyError, ValueError) as error:
        problem = f"is not in the safetensors format: {name}: {error}"
        raise sealed.damaged(path, problem, noun=noun) from error


def _check_header(data: bytes) -> None:
    """Refuse a header that would take more memory than the names of tensors can need."""
    size = int.from_bytes(data[:8], "little")
    if size > _HEADER_BYTES:
        raise ValueError(f"the header takes {size} bytes of at most {_HEADER_BYTES}")

"""`python -m rl_orch.worker.tasks.read_foreign < question.json`: read a policy that another library
saved.

The question names a file in the current folder and what is known of it. Before a byte of the file
is looked at, this process gives up what it does not need. The tensors go to a file that was
opened before, under our names; the answer says which options go with them.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.numpy import save as encode_tensors

from rl_orch.errors import BadInput, RlctlError
from rl_orch.foreign import reading
from rl_orch.foreign.archive import MOST_BYTES
from rl_orch.io.files.sealed import advice
from rl_orch.io.processes.sandbox import confine
from rl_orch.worker.task import Tell, answer_one

OWN_BYTES = 1 << 30
"""Of memory, for this program itself; besides, it may have a few times what it reads."""

COPIES = 4
SECONDS = 120


def read(question: Mapping[str, Any], _tell: Tell) -> dict[str, Any]:
    """The content of the file, but for its tensors."""
    source, what = Path(question["file"]), str(question["called"])
    normalizer = question.get("normalizer")
    size = source.stat().st_size
    with Path(question["tensors"]).open("xb") as tensors:
        memory = OWN_BYTES + COPIES * size
        kept = confine(memory=memory, seconds=SECONDS, written=2 * MOST_BYTES)
        try:
            found = reading.policy(source.read_bytes(), question.get("algorithm"), what)
            if normalizer is not None:
                called = str(question["normalizer_called"])
                found = reading.normalized(found, Path(normalizer).read_bytes(), called)
            tensors.write(encode_tensors(found.placed.tensors))
            os.fsync(tensors.fileno())
        except MemoryError:
            raise BadInput(
                f"{what} takes more than {memory >> 20:,} MiB of memory to read, which no policy "
                f"of {size:,} bytes does",
            ) from None
        except OSError as error:
            raise _unwritable(what, error) from None
    return _told(found) | {"confined": kept}


def _unwritable(what: str, error: OSError) -> RlctlError:
    return RlctlError(
        f"the tensors of {what} cannot be written: {error.strerror}",
        hint=advice(error, then="import it again"),
    )


def _told(found: reading.Policy) -> dict[str, Any]:
    placed = found.placed
    stretched = {"scale": placed.scale, "bias": placed.bias}
    return {
        "format": found.format,
        "algorithm": placed.algorithm,
        "options": placed.options,
        "notes": list(placed.notes),
        "step": found.step,
        "stretched": {
            name: [float(number) for number in array.reshape(-1)]
            for name, array in stretched.items()
            if array is not None
        },
    }


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(answer_one(read))

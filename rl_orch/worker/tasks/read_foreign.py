"""`python -m rl_orch.worker.tasks.read_foreign < question.json`: read a policy that another library
saved.

Before a byte of the file is looked at, this process gives up what it does not need. The tensors go
to a file that was opened before, under our names; the answer says which options go with them.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from safetensors.numpy import save as encode_tensors

from rl_orch.errors import BadInput, RlctlError
from rl_orch.foreign import reading
from rl_orch.io.files.sealed import advice
from rl_orch.io.files.zips import MOST_BYTES
from rl_orch.io.processes.sandbox import confine
from rl_orch.records.tasks import ReadForeignAnswer, ReadForeignTask
from rl_orch.worker.task import Tell, answer_one

OWN_BYTES = 1 << 30
"""Of memory, for this program itself; besides, it may have a few times what it reads."""

COPIES = 4
SECONDS = 120


def read(task: ReadForeignTask, _tell: Tell) -> ReadForeignAnswer:
    """The content of the file, but for its tensors."""
    source, what = Path(task.file), task.called
    size = source.stat().st_size
    with Path(task.tensors).open("xb") as tensors:
        memory = OWN_BYTES + COPIES * size
        kept = confine(memory=memory, seconds=SECONDS, written=2 * MOST_BYTES)
        try:
            found = reading.policy(source.read_bytes(), task.algorithm, what)
            if task.normalizer is not None:
                data, called = Path(task.normalizer).read_bytes(), str(task.normalizer_called)
                found = reading.normalized(found, data, called)
            tensors.write(encode_tensors(found.placed.tensors))
            os.fsync(tensors.fileno())
        except MemoryError:
            raise BadInput(
                f"{what} takes more than {memory >> 20:,} MiB of memory to read, which no policy "
                f"of {size:,} bytes does",
            ) from None
        except OSError as error:
            raise _unwritable(what, error) from None
    return _told(found, confined=kept)


def _unwritable(what: str, error: OSError) -> RlctlError:
    return RlctlError(
        f"the tensors of {what} cannot be written: {error.strerror}",
        hint=advice(error, then="import it again"),
    )


def _told(found: reading.Policy, *, confined: bool) -> ReadForeignAnswer:
    placed = found.placed
    stretched = {"scale": placed.scale, "bias": placed.bias}
    return ReadForeignAnswer(
        format=found.format,
        algorithm=placed.algorithm,
        options=placed.options,
        notes=tuple(placed.notes),
        step=found.step,
        stretched={
            name: tuple(float(number) for number in array.reshape(-1))
            for name, array in stretched.items()
            if array is not None
        },
        confined=confined,
    )


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(answer_one(ReadForeignTask, read))

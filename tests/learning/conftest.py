"""Learning tests use one thread: results depend on the number, and two cores are shared."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Whatever the machine, tensor operations run on one thread."""
    torch.set_num_threads(1)

"""A contract suite of every encoder.

    class TestMine(EncoderContract):
        make = Mine

Not among the names of `rl_orch.testing` itself, since it loads torch.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rl_orch import plugins
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.policies.encoder_trial import fault, samples
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.nets import Net
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.rl.policies.policy import Inputs
from rl_orch.spec.groups import FeatureGroup, NetworkGroup, ObsGroup

NAME = "encoder-under-test"
ROWS = 5

VECTOR = spaces.Box(-1.0, 1.0, (6,))
IMAGE = spaces.Box(0, 255, (40, 36, 3), np.uint8)
PARTS = spaces.Dict({"arm": VECTOR, "camera": IMAGE, "mode": spaces.Discrete(3)})


class EncoderContract:
    """The contract of every encoder. A subclass says how one is made, and what it can see."""

    make: Callable[[ObservationPipeline, FeatureGroup, torch.Generator], Any]

    observations: tuple[Space[Any], ...] = (VECTOR,)
    options: FeatureGroup = FeatureGroup()
    """The options of `feature`; its name there counts for nothing."""

    def setup_method(self) -> None:
        """One thread, which is faster for small networks and the same everywhere."""
        torch.set_num_threads(1)

    def test_it_makes_as_many_features_as_it_says(self) -> None:
        """Of one row and of several: (B, size), float32, finite, with gradients that are."""
        for space, pipeline in self._seen():
            encoder = self._made(pipeline)
            for rows in (1, ROWS):
                assert fault(encoder, samples(pipeline, space, rows)) is None

    def test_its_weights_follow_from_the_seed(self) -> None:
        """Whether they are drawn from the generator or, as torch's layers do, from the global one;
        which is left as it was."""
        for _, pipeline in self._seen():
            before = torch.get_rng_state()
            first, same = (self._made(pipeline, seed=1).state_dict() for _ in range(2))
            assert torch.equal(torch.get_rng_state(), before)
            assert first.keys() == same.keys()
            assert all(torch.equal(first[name], same[name]) for name in first)

    def test_every_row_is_encoded_for_itself(self) -> None:
        """Whatever is beside it in a batch, and however often it was encoded before."""
        for space, pipeline in self._seen():
            encoder, batch = self._made(pipeline), samples(pipeline, space, ROWS)
            with torch.no_grad():
                whole = encoder(batch)
                for row in range(ROWS):
                    alone = encoder(_rows(batch, slice(row, row + 1)))
                    torch.testing.assert_close(alone, whole[row : row + 1], atol=1e-4, rtol=1e-4)

    def test_gradients_reach_all_that_it_learns(self) -> None:
        """In the sum over several rows."""
        for space, pipeline in self._seen():
            encoder = self._made(pipeline)
            learned = [each for each in encoder.parameters() if each.requires_grad]
            if not learned:
                continue
            features = encoder(samples(pipeline, space, ROWS))
            weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(3))
            gradients = torch.autograd.grad((features * weights).sum(), learned, allow_unused=True)
            assert all(each is not None for each in gradients)

    def test_one_that_is_loaded_encodes_alike(self) -> None:
        """Its state is its parameters and buffers: what a checkpoint has."""
        for space, pipeline in self._seen():
            kept, other = (self._made(pipeline, seed=seed) for seed in (1, 2))
            batch = samples(pipeline, space, ROWS)
            with torch.no_grad():
                kept(batch)
                other.load_state_dict(kept.state_dict())
                torch.testing.assert_close(other(batch), kept(batch))

    def test_what_it_is_given_stays_as_it_was(self) -> None:
        """Others see the same inputs."""
        for space, pipeline in self._seen():
            batch, before = (samples(pipeline, space, ROWS) for _ in range(2))
            with torch.no_grad():
                self._made(pipeline)(batch)
            for name, part in _parts(before).items():
                assert torch.equal(_parts(batch)[name], part)

    def _seen(self) -> Iterator[tuple[Space[Any], ObservationPipeline]]:
        for space in self.observations:
            yield space, ObservationPipeline(flat_space(space), ObsGroup())

    def _made(self, pipeline: ObservationPipeline, seed: int = 0) -> Net:
        """The encoder as a policy makes it."""
        feature = self.options.model_copy(update={"encoder": NAME})
        generator = torch.Generator().manual_seed(seed)
        with plugins.provided("encoders", NAME, type(self).make):
            return build_encoder(pipeline, feature, NetworkGroup(), generator)


def _parts(inputs: Inputs) -> dict[str, Tensor]:
    return {"": inputs} if isinstance(inputs, Tensor) else dict(inputs)


def _rows(inputs: Inputs, rows: slice) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs[rows]
    return {name: part[rows] for name, part in inputs.items()}

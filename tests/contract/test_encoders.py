"""Every encoder makes finite features of its size from whatever it can see, row by row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.spec.groups import FeatureGroup, NetworkGroup
from rl_orch.testing.encoders import IMAGE, PARTS, VECTOR, EncoderContract


def ours(name: str) -> Any:
    """A maker of one of ours."""

    def make(
        pipeline: ObservationPipeline, feature: FeatureGroup, generator: torch.Generator
    ) -> nn.Module:
        named = feature.model_copy(update={"encoder": name})
        return build_encoder(pipeline, named, NetworkGroup(), generator)

    return staticmethod(make)


class TestAuto(EncoderContract):
    make, observations = ours("auto"), (VECTOR, IMAGE, PARTS)


class TestMlp(EncoderContract):
    make, observations = ours("mlp"), (VECTOR, IMAGE, PARTS)
    options = FeatureGroup(embed_dim=7)


class TestCnn(EncoderContract):
    make, observations = ours("cnn"), (IMAGE, PARTS)


class TestImpala(EncoderContract):
    make, observations = ours("impala"), (IMAGE, PARTS)


class TestTransformer(EncoderContract):
    make, observations = ours("transformer"), (VECTOR, PARTS)


class TestGru(EncoderContract):
    make, observations = ours("gru"), (VECTOR, PARTS)


class TestLstm(EncoderContract):
    make, observations = ours("lstm"), (VECTOR, PARTS)


class Frozen(nn.Module):
    """Features of a network that was trained elsewhere, and a layer that learns."""

    def __init__(self, pipeline: ObservationPipeline, feature: FeatureGroup, _: Any) -> None:
        super().__init__()
        self.size = feature.embed_dim or 8
        self.trained = nn.Linear(pipeline.size, 16).requires_grad_(False)
        self.layer = nn.Linear(16, self.size)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.layer(self.trained(inputs).relu())
        return features


class TestFrozen(EncoderContract):
    make, options = Frozen, FeatureGroup(embed_dim=5)


class Normed(Frozen):
    """Rows that are normalised by those beside them."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs - inputs.mean(0))


class Cut(Frozen):
    """Features that no gradient comes from."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).detach()


@pytest.mark.parametrize(
    ("made", "test"),
    [
        (Normed, EncoderContract.test_every_row_is_encoded_for_itself),
        (Cut, EncoderContract.test_it_makes_as_many_features_as_it_says),
    ],
)
def test_one_that_does_not_keep_it_fails(made: Any, test: Callable[[Any], None]) -> None:
    suite = type("Suite", (EncoderContract,), {"make": made})()
    with pytest.raises(AssertionError):
        test(suite)

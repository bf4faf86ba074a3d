"""What a collector hands over besides rewards: observations of several parts, masks, memories and
where episodes begin, in both ways of resetting."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import BadInput, Diverged
from rl_orch.rl.collect.rollout import LocalCollector
from rl_orch.rl.data.batch import Batch, Column, host_column, on_host
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.masks import ShownMasks, masks_in
from rl_orch.rl.envs.state.seeded_episodes import SeededEpisodes
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.policies.policy import Decision, PolicyInput
from rl_orch.spec.model import Spec
from tests.learning import known_envs

both_ways = pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])


class MaskedByMethod(known_envs.Masked):
    """Says what is allowed by a method, as environments for sb3-contrib do."""

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0], {}

    def step(self, action: Any) -> known_envs.Step:
        *rest, _ = super().step(action)
        seen, reward, terminated, truncated = rest
        return seen, reward, terminated, truncated, {}

    def action_masks(self) -> list[bool]:
        return [bool(allowed) for allowed in self.info()["action_mask"]]


class Named(known_envs.Known):
    """Shows its time under two names, one of them nested, and ends after three steps."""

    observation_space = spaces.Dict(
        {"clock": spaces.Box(0.0, 9.0, (1,)), "more": spaces.Dict({"t": spaces.Discrete(9)})}
    )
    action_space = spaces.Discrete(2)
    poison: str | None = None

    def seen(self) -> Any:
        time = np.nan if self.poison == "clock" and self.t == 2 else self.t
        return {"clock": np.array([time], np.float32), "more": {"t": self.t}}

    def step(self, action: Any) -> known_envs.Step:
        self.t += 1
        return self.seen(), 1.0, False, self.t == 3, {}


for name in ("MaskedByMethod", "Named"):
    gymnasium.register(f"{name}-v0", f"{__name__}:{name}")


class Counting:
    """Remembers how many steps of the episode it has seen, and takes the first allowed action."""

    device = torch.device("cpu")

    def __init__(self, memory_size: int = 1) -> None:
        self.memory_size = memory_size

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        rows = len(seen.first)
        actions = np.zeros(rows, np.int64) if seen.masks is None else seen.masks.argmax(-1)
        if not self.memory_size:
            return Decision(actions)
        assert seen.memory is not None
        counted = np.where(seen.first[:, None], 0.0, seen.memory) + 1.0
        return Decision(actions, counted.astype(np.float32))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions


def envs_of(env_id: str, mode: AutoresetMode, copies: int = 1, **kwargs: Any) -> vector.Envs:
    made: vector.Envs = gymnasium.make_vec(
        env_id if env_id in gymnasium.registry else f"{known_envs.MODULE}:{env_id}",
        copies,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode, "copy": False},
        wrappers=[ShownMasks, SeededEpisodes],
        disable_env_checker=True,
        **kwargs,
    )
    return made


def a_collector(envs: vector.Envs, *, memory: int = 0, masked: bool = False) -> LocalCollector:
    return LocalCollector(envs, seed=3, device="cpu", masked=masked)


def rows(batch: Batch, name: str) -> Any:
    return on_host(batch.column(name)).reshape(-1).tolist()


def columns(batch: Batch) -> dict[str, Any]:
    """All columns by name, those of mappings by the names of both."""
    found: dict[str, Column | None] = {
        name: getattr(batch, name)
        for name in ("observations", "actions", "rewards", "terminated", "truncated")
    }
    found |= {"next_observations": batch.next_observations, **batch.extras}
    flat: dict[str, Any] = {}
    for name, column in found.items():
        if isinstance(column, Mapping):
            flat |= {f"{name}/{key}": np.asarray(value) for key, value in column.items()}
        else:
            flat[name] = np.asarray(column)
    return flat


def assert_same(one: Batch, other: Batch) -> None:
    mine, theirs = columns(one), columns(other)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert np.array_equal(mine[name], theirs[name]), name


def test_memories_and_beginnings_where_episodes_are_reset_at_once() -> None:
    collector = a_collector(envs_of("Ladder-v0", AutoresetMode.SAME_STEP), memory=1)
    batch = collector.collect(Counting(), 5)
    assert rows(batch, "observations") == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert rows(batch, "valid") == [True] * 5
    assert rows(batch, "first") == [True, False, True, False, True]
    assert rows(batch, "memories") == [0.0, 1.0, 2.0, 1.0, 2.0]
    assert rows(batch, "next_memories") == [1.0, 2.0, 1.0, 2.0, 1.0]


def test_memories_and_beginnings_where_a_step_is_spent_on_the_reset() -> None:
    collector = a_collector(envs_of("Ladder-v0", AutoresetMode.NEXT_STEP), memory=1)
    batch = collector.collect(Counting(), 5)
    assert rows(batch, "observations") == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert rows(batch, "valid") == [True, True, False, True, True]
    assert rows(batch, "first") == [True, False, False, True, False]
    assert rows(batch, "memories") == [0.0, 1.0, 2.0, 3.0, 1.0]
    assert rows(batch, "next_memories") == [1.0, 2.0, 3.0, 1.0, 2.0]


@both_ways
@pytest.mark.parametrize("sizes", [(1,) * 12, (2, 3, 7), (5, 7)])
def test_where_rollouts_are_cut_changes_nothing(
    mode: AutoresetMode, sizes: tuple[int, ...]
) -> None:
    whole, cut = (
        a_collector(envs_of("MaskedPair-v0", mode), memory=1, masked=True) for _ in range(2)
    )

    class Paired(Counting):
        def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
            assert seen.masks is not None
            choice = seen.masks.reshape(-1, 2, 3).argmax(-1)
            return Decision(choice, super().decide(seen, generator).memory)

    parts = [cut.collect(Paired(), size) for size in sizes]
    assert_same(whole.collect(Paired(), 12), Batch.merge(parts))
    assert whole.env_steps == cut.env_steps


@both_ways
def test_observations_of_several_parts_are_flat_and_end_with_their_last(
    mode: AutoresetMode,
) -> None:
    batch = a_collector(envs_of("Named-v0", mode, copies=2)).collect(Counting(0), 4)
    assert isinstance(batch.observations, Mapping)
    seen, following = host_column(batch.observations), host_column(batch.next_observations)
    assert {*seen} == {*following} == {"clock", "more/t"}
    again = [0, 1, 2, 0] if mode is AutoresetMode.SAME_STEP else [0, 1, 2, 3]
    last = 1 if mode is AutoresetMode.SAME_STEP else 0
    for name in seen:
        assert seen[name].reshape(2, 4).tolist() == [again] * 2
        assert following[name].reshape(2, 4).tolist() == [[1, 2, 3, last]] * 2
    assert (seen["clock"].dtype, seen["more/t"].dtype) == (np.float32, np.int64)


def test_a_part_that_is_not_a_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Named, "poison", "clock")
    collector = a_collector(envs_of("Named-v0", AutoresetMode.SAME_STEP))
    with pytest.raises(
        Diverged, match=r"non-finite observation 'clock' at step 2, copy 0: \[nan\]"
    ):
        FiniteNumbers(3).collected(collector.collect(Counting(0), 3), collector.env_steps)


@both_ways
@pytest.mark.parametrize("env_id", ["Masked-v0", "MaskedByMethod-v0"])
def test_masks_are_those_in_force_and_the_next_those_after_the_step(
    env_id: str, mode: AutoresetMode
) -> None:
    collector = a_collector(envs_of(env_id, mode, copies=2), masked=True)
    batch = collector.collect(Counting(0), 20)
    masks, following = (on_host(batch.column(name)) for name in ("masks", "next_masks"))
    actions, dones = on_host(batch.column("actions")), on_host(batch.dones)
    assert masks.shape == following.shape == (40, 3)
    assert masks[np.arange(40), actions].all()
    assert on_host(batch.column("rewards")).min() >= 0.0
    assert len(np.unique(masks, axis=0)) == 4
    inside = ~dones
    inside[[19, 39]] = False
    assert np.array_equal(following[:-1][inside[:-1]], masks[1:][inside[:-1]])
    # All is allowed once an episode is over.
    assert dones.sum() > 2
    assert following[dones].all()


@both_ways
def test_a_copy_is_shown_its_own_mask_when_it_begins_anew(mode: AutoresetMode) -> None:
    """The masks of a copy are the ones that it would show alone."""
    together = a_collector(envs_of("Masked-v0", mode, copies=3), masked=True)
    alone = a_collector(envs_of("Masked-v0", mode, copies=1), masked=True)
    shown = on_host(together.collect(Counting(0), 30).column("masks")).reshape(3, 30, 3)
    assert np.array_equal(shown[0], on_host(alone.collect(Counting(0), 30).column("masks")))
    assert not np.array_equal(shown[0], shown[1])


def test_an_environment_that_gives_no_masks_is_refused_with_how_to_give_them() -> None:
    with pytest.raises(BadInput, match="the environment gives no mask") as caught:
        a_collector(envs_of("Ladder-v0", AutoresetMode.SAME_STEP), masked=True)
    assert caught.value.path == "agent.action_masks"
    assert "action_masks()" in (caught.value.hint or "")


def test_masks_that_only_some_copies_give_are_refused() -> None:
    infos = {"action_mask": np.ones((2, 3)), "_action_mask": np.array([True, False])}
    with pytest.raises(BadInput, match="gives no mask"):
        masks_in(infos, 2, 3)


def test_masks_of_another_length_than_the_choices_are_refused() -> None:
    with pytest.raises(BadInput, match="masks of 3 entries; must be 5"):
        masks_in({"action_mask": np.ones((2, 3))}, 2, 5)


@pytest.mark.parametrize(
    ("given", "flat"),
    [
        ([1, 0, 1], [True, False, True]),
        (np.array([[0, 1], [1, 1]], np.int8), [False, True, True, True]),
        ((np.array([1, 0]), np.array([0, 0, 1])), [True, False, False, False, True]),
    ],
)
def test_masks_in_every_form_become_one_row(given: Any, flat: list[bool]) -> None:
    class Told(known_envs.Forever):
        def reset(self, **options: Any) -> Any:
            return super().reset(**options)[0], {"action_mask": given}

    _, info = ShownMasks(Told()).reset(seed=0)
    assert info["action_mask"].dtype == np.bool_
    assert info["action_mask"].tolist() == flat


@pytest.mark.parametrize(
    ("env_id", "memory", "masked"),
    [("Named-v0", 1, False), ("Masked-v0", 2, True), ("Ladder-v0", 0, False)],
)
def test_a_collector_goes_on_from_its_state(env_id: str, memory: int, masked: bool) -> None:
    full = env_id if env_id in gymnasium.registry else f"{known_envs.MODULE}:{env_id}"
    spec = Spec.model_validate(
        {"env": {"id": full, "num_envs": 2}, "agent": {"action_masks": masked}}
    )

    def made() -> LocalCollector:
        return a_collector(vector.make(spec, num_envs=2), memory=memory, masked=masked)

    whole, resumed, actor = made(), made(), Counting(memory)
    whole.collect(actor, 4)
    state = whole.state()
    assert resumed.load_state(state) is False
    assert_same(whole.collect(actor, 7), resumed.collect(actor, 7))
    assert whole.env_steps == resumed.env_steps == 22


def test_where_a_state_cannot_be_gone_on_with_all_episodes_begin() -> None:
    spec = Spec.model_validate(
        {"env": {"id": f"{known_envs.MODULE}:Masked-v0"}, "agent": {"action_masks": True}}
    )
    made: Callable[[], vector.Envs] = lambda: vector.make(  # noqa: E731
        spec, num_envs=2, method="restarted"
    )
    first, second = (a_collector(made(), memory=1, masked=True) for _ in range(2))
    first.collect(Counting(), 3)
    assert second.load_state(first.state()) is True
    batch = second.collect(Counting(), 2)
    assert rows(batch, "first") == [True, False] * 2
    assert on_host(batch.column("masks"))[np.arange(4), rows(batch, "actions")].all()
    assert on_host(batch.column("rewards")).min() >= 0.0

"""Evaluation: fair, repeatable, and without a trace in the generators of training."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.errors import RlctlError
from rl_orch.rl import evaluate as evaluation
from rl_orch.rl.collect import episodes as playing
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.masks import ShownMasks
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.envs.state.seeded_episodes import SeededEpisodes
from rl_orch.rl.evaluate import Evaluator, evaluate, evaluation_seed, final_evaluation_seed
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Actor, Decision, PolicyInput, Setup, policy_tensors
from rl_orch.rl.seeding import rng_state, seed_all
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec
from tests.learning import known_envs


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in training: for networks of this size, more are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def a_spec(name: str = "Dice", **groups: Any) -> Spec:
    options = {"id": f"{known_envs.MODULE}:{name}-v0"} | groups.pop("env", {})
    return Spec.model_validate({"env": options, **groups})


def a_policy(spec: Spec) -> ActorCritic:
    envs = vector.make(spec, num_envs=1)
    setup = Setup(spec, flat_space(envs.single_observation_space), envs.single_action_space)
    envs.close()
    return ActorCritic.build(setup)


def returns(spec: Spec, episodes: int = 20, seed: int = 3, deterministic: bool = False) -> Any:
    policy = a_policy(spec)
    options: Any = {"episodes": episodes, "seed": seed, "deterministic": deterministic}
    return evaluate(policy, spec, step=0, **options).returns


def test_a_report_says_what_was_evaluated_and_how() -> None:
    spec = a_spec("Ladder", env={"kwargs": {"length": 3}})
    report = evaluate(
        a_policy(spec), spec, episodes=5, seed=3, deterministic=True, step=9, checkpoint="step_9"
    )
    assert report.returns == (6.0,) * 5
    assert report.lengths == (3,) * 5
    assert (report.step, report.checkpoint, report.seed) == (9, "step_9", 3)
    assert (report.summary.mean, report.summary.n, report.summary.unit) == (6.0, 5, "episodes")


def test_one_seed_gives_one_report_and_another_seed_another() -> None:
    assert returns(a_spec()) == returns(a_spec())
    assert returns(a_spec()) != returns(a_spec(), seed=4)


def test_sampling_is_repeatable_and_differs_from_the_mode() -> None:
    assert returns(a_spec(), deterministic=True) == returns(a_spec(), deterministic=True)
    assert returns(a_spec(), deterministic=True) != returns(a_spec())


def test_every_generator_is_left_as_it_was_and_the_normaliser_too() -> None:
    spec = a_spec(obs={"normalize": "running"})
    policy = a_policy(spec)
    policy.pipeline.update(np.random.default_rng(0).random((9, 2)))
    seed_all(1)
    before, tensors = rng_state(), policy_tensors(policy)
    evaluate(policy, spec, episodes=4, seed=3, deterministic=False, step=0)
    after = rng_state()
    assert after.document == before.document
    assert np.array_equal(after.tensors["torch"], before.tensors["torch"])
    assert all(np.array_equal(tensors[k], v) for k, v in policy_tensors(policy).items())


def test_environments_that_are_used_again_give_the_same_report() -> None:
    spec = a_spec()
    policy, evaluator = a_policy(spec), Evaluator(spec)
    options: Any = {"seed": 3, "deterministic": True, "step": 0}
    first = evaluator.evaluate(policy, episodes=20, **options)
    evaluator.evaluate(policy, episodes=3, **options)
    assert evaluator.evaluate(policy, episodes=20, **options) == first
    evaluator.close()


def test_short_episodes_are_not_favoured() -> None:
    lengths = np.array(returns_lengths(episodes=400))
    assert lengths.mean() == pytest.approx(5.0, abs=0.7)


def returns_lengths(episodes: int) -> tuple[int, ...]:
    """Lengths of the dice's episodes, which last five steps on average."""
    spec = a_spec()
    return evaluate(
        a_policy(spec), spec, episodes=episodes, seed=1, deterministic=True, step=0
    ).lengths


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_returns_do_not_depend_on_how_many_episodes_are_played_side_by_side(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cart_pole = {"id": "CartPole-v1", "backend": backend, "max_episode_steps": 99}
    played = []
    for lanes in (1, 3, 8):
        monkeypatch.setattr(evaluation, "LANES", lanes)
        played.append(returns(a_spec(env=cart_pole | {"num_envs": 8}), deterministic=True))
    one, three, eight = played
    assert len(set(one)) > 5
    assert one == three == eight


@pytest.mark.parametrize(
    ("num_envs", "episodes", "lanes"), [(2, 10, 2), (8, 3, 3), (64, 100, 16), (1, 1, 1)]
)
def test_there_are_no_more_lanes_than_environments_or_episodes(
    num_envs: int, episodes: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = a_spec("Ladder", env={"num_envs": num_envs})
    policy, made, make = a_policy(spec), [], vector.make

    def counted(spec: Spec, *, num_envs: int) -> vector.Envs:
        made.append(num_envs)
        return make(spec, num_envs=num_envs)

    monkeypatch.setattr(vector, "make", counted)
    evaluate(policy, spec, episodes=episodes, seed=3, deterministic=True, step=0)
    assert made == [lanes]


def test_an_environment_that_resets_in_the_next_step_gives_the_same_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def next_step(spec: Spec, num_envs: int) -> Any:
        return gymnasium.make_vec(
            spec.env.id,
            num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP},
            wrappers=[SeededEpisodes],
        )

    monkeypatch.setattr(plugins, "load", lambda kind, name: next_step)
    seeded = {"id": "CartPole-v1"}
    there = returns(a_spec(env=seeded | {"backend": "other"}), deterministic=True)
    assert there == returns(a_spec(env=seeded), deterministic=True)


class Recalling:
    """Remembers the sign that the first step of an episode of Recall shows, and names it."""

    device = torch.device("cpu")
    memory_size = 1

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        cue = np.asarray(seen.observations)[:, :1]
        memory = np.zeros_like(cue) if seen.memory is None else seen.memory
        kept = np.where(seen.first[:, None], cue, memory).astype(np.float32)
        return Decision((kept[:, 0] > 0).astype(np.int64), kept)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions


class Obedient:
    """Takes the best-paid action of `Masked` among those that are allowed."""

    device = torch.device("cpu")
    memory_size = 0

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        assert seen.masks is not None
        return Decision(seen.masks.argmax(-1))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions


def in_the_next_step(spec: Spec, num_envs: int) -> Any:
    """A plugin's vector environment that spends a step on each reset."""
    return gymnasium.make_vec(
        spec.env.id,
        num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP},
        wrappers=[ShownMasks, SeededEpisodes],
        disable_env_checker=True,
    )


@pytest.mark.parametrize("backend", ["sync", "other"])
@pytest.mark.parametrize(
    ("name", "actor", "ret"), [("Recall", Recalling(), 1.0), ("Masked", Obedient(), 5.2)]
)
def test_memories_and_masks_are_those_of_each_episode(
    name: str, actor: Actor, ret: float, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "load", lambda kind, name: in_the_next_step)
    masked = {"action_masks": name == "Masked"}
    spec = a_spec(name, env={"backend": backend, "num_envs": 3}, agent=masked)
    report = evaluate(actor, spec, episodes=11, seed=3, deterministic=True, step=0)
    assert report.returns == pytest.approx([ret] * 11)


@pytest.mark.parametrize("name", ["IdentityDict", "IdentityMultiDiscrete", "IdentityImage"])
@pytest.mark.parametrize("encoder", ["auto", "gru"])
def test_policies_for_every_kind_of_observation_are_evaluated(name: str, encoder: str) -> None:
    spec = a_spec(name, feature={"encoder": encoder, "embed_dim": 8})
    first = returns(spec, episodes=3)
    assert len(first) == 3
    assert first == returns(spec, episodes=3)


ENDLESS = {"kwargs": {"length": 10**9}}


@pytest.mark.parametrize(
    ("groups", "length", "cut"),
    [
        ({}, 50, 2),
        ({"eval": {"max_episode_steps": 20}}, 20, 2),
        ({"env": ENDLESS | {"max_episode_steps": 60}}, 60, 0),
        ({"env": ENDLESS | {"max_episode_steps": 60}, "eval": {"max_episode_steps": 70}}, 60, 0),
        ({"env": ENDLESS | {"max_episode_steps": 60}, "eval": {"max_episode_steps": 30}}, 30, 2),
        ({"env": {"kwargs": {"length": 20}}, "eval": {"max_episode_steps": 20}}, 20, 0),
    ],
)
def test_every_episode_of_an_evaluation_ends_and_the_report_says_which_were_cut(
    groups: dict[str, Any], length: int, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector, "EVALUATION_LIMIT", 50)
    spec = a_spec("Ladder", **{"env": ENDLESS} | groups)
    found = evaluate(a_policy(spec), spec, episodes=2, seed=3, deterministic=True, step=0)
    assert (found.lengths, found.cut) == ((length,) * 2, cut)
    assert (found.cut_sentence is not None) == (cut > 0)


def test_an_environment_that_nobody_can_limit_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playing, "ENDLESS", 50)
    monkeypatch.setattr(vector, "evaluated", lambda spec: spec)
    spec = a_spec("Ladder", env=ENDLESS)
    with pytest.raises(RlctlError, match="has not ended after 50 steps") as caught:
        returns(spec)
    assert caught.value.path == "env.backend"


@pytest.mark.parametrize(
    "groups",
    [
        {
            "env": {"wrappers": [{"name": "ClipReward", "max_reward": 1}]},
            "eval": {"max_episode_steps": 60},
        },
        {"env": {"wrappers": [{"name": "TimeLimit", "max_episode_steps": 60}]}},
    ],
)
def test_an_episode_that_a_wrapper_limits_may_be_as_long_as_that(
    groups: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "ENDLESS", 50)
    spec = a_spec("Ladder", **groups | {"env": ENDLESS | groups["env"]})
    found = evaluate(a_policy(spec), spec, episodes=2, seed=3, deterministic=True, step=0)
    assert found.lengths == (60, 60)


@pytest.mark.parametrize("options", [{}, {"seed": 5}])
def test_the_final_evaluation_repeats_no_episode_of_those_during_training(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = a_spec("Ladder", env={"num_envs": 16}, eval=options)
    during = seeds_used(spec, 320, evaluation_seed(spec), monkeypatch)
    final = seeds_used(spec, 100, final_evaluation_seed(spec), monkeypatch)
    assert (len(during), len(final)) >= (320, 100)
    assert during.isdisjoint(final)


def seeds_used(spec: Spec, episodes: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The seeds that an evaluation resets its environments with."""
    policy, used, reset = a_policy(spec), set(), known_envs.Ladder.reset

    def noted(env: known_envs.Ladder, *, seed: int, options: Any = None) -> Any:
        used.add(seed)
        return reset(env, seed=seed, options=options)

    with monkeypatch.context() as patched:
        patched.setattr(known_envs.Ladder, "reset", noted)
        evaluate(policy, spec, episodes=episodes, seed=seed, deterministic=True, step=0)
    return used


def test_both_seeds_of_evaluations_derive_from_the_given_one_or_else_from_the_runs() -> None:
    for base, spec in ((9, a_spec(env={"seed": 9})), (5, a_spec(eval={"seed": 5}))):
        assert evaluation_seed(spec) == derive(base, Stream.EVALUATION)
        assert final_evaluation_seed(spec) == derive(base, Stream.FINAL_EVALUATION)

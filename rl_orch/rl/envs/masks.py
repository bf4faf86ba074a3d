"""Action masks: which actions an environment allows, as it says in its infos."""

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.envs.actions import choices_of, counted

KEY = "action_mask"


class ShownMasks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts what the method `action_masks()` of an environment says into its infos.

    Gymnasium's own environments say it in their infos; those made for sb3-contrib by that method.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation, and the mask in the infos."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._shown(info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step, and the mask in the infos."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, self._shown(info)

    def _shown(self, info: dict[str, Any]) -> dict[str, Any]:
        masks = getattr(self.env.unwrapped, "action_masks", None)
        if KEY not in info and callable(masks):
            info[KEY] = masks()
        # Flat and of one kind, so that the masks of all copies make one array.
        given = info.get(KEY)
        if isinstance(given, tuple | list):
            given = np.concatenate([np.ravel(part) for part in given])
        if given is not None:
            info[KEY] = np.ravel(given).astype(np.bool_)
        return info


def masks_in(infos: dict[str, Any], copies: int, choices: int) -> NDArray[np.bool_]:
    """The masks of all copies, (N, choices); an error that says how to give them if they are not
    there, or not as long as there are choices."""
    masks, given = infos.get(KEY), infos.get(f"_{KEY}")
    if masks is None or (given is not None and not np.all(given)):
        raise BadInput(
            "agent.action_masks is true, but the environment gives no mask",
            path="agent.action_masks",
            hint="Put one into info['action_mask'] at every reset and step, or give the "
            "environment a method action_masks().",
        )
    if isinstance(masks, tuple | list):
        masks = np.concatenate([np.asarray(part).reshape(copies, -1) for part in masks], axis=1)
    flat = np.asarray(masks).reshape(copies, -1)
    if flat.shape[1] != choices or flat.dtype == object:
        raise BadInput(
            f"the environment gives action masks of {flat.shape[1]} entries; must be {choices}, "
            "one for each choice",
            path="agent.action_masks",
        )
    return flat.astype(np.bool_, copy=False)


def allowed_action(space: Any, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """An allowed action of one copy, as a vector environment of one takes it."""
    chosen, start = [], 0
    for count in choices_of(space):
        chosen.append(int(np.argmax(mask[start : start + count])))
        start += count
    action = np.asarray(chosen).reshape(1, *(space.shape or ()))
    return np.asarray(counted(space, action))


def final_masks(infos: dict[str, Any], masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """As `masks_in`, but those at the end of the episode for copies just reset."""
    final = infos.get("final_info")
    if not isinstance(final, dict) or KEY not in final:
        return masks
    given = np.asarray(final[f"_{KEY}"], np.bool_)
    return np.where(given[:, None], np.asarray(final[KEY], np.bool_).reshape(masks.shape), masks)

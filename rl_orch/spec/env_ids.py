"""Ids of environments without their version, as Gymnasium takes them; a spec has the whole id."""

import re
from typing import Any

UNVERSIONED = re.compile(r"(?:(?P<namespace>[\w-]+)/)?(?P<name>[\w.-]*\w)")
VERSIONED = re.compile(r".*-v[0-9]+")


def newest_version(env_id: Any) -> str | None:
    """The newest id that an id without a version means; None where it is whole, or not known.

    Those of other modules are known where they are imported, which is not here.
    """
    text = env_id.strip() if isinstance(env_id, str) else ""
    match = UNVERSIONED.fullmatch(text)
    if match is None or VERSIONED.fullmatch(text):
        return None
    # Gymnasium takes a while to load, and hardly anybody leaves the version out.
    from gymnasium.envs.registration import find_highest_version, get_env_id, registry

    version = find_highest_version(match["namespace"], match["name"])
    if text in registry or version is None:
        return None
    return get_env_id(match["namespace"], match["name"], version)

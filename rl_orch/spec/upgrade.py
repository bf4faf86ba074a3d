"""Resolved specs that earlier releases wrote, in the words of this one. A run keeps its hash."""

from collections.abc import Mapping
from typing import Any


def upgraded(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a resolved spec, which says every option that its release had.

    Before there were encoders to choose from, `mlp` was the only one, and `MlpPolicy` the only
    policy: what `auto` and null stand for now.
    """
    feature, agent = document.get("feature"), document.get("agent")
    if not isinstance(feature, Mapping) or "options" in feature or not isinstance(agent, Mapping):
        return document
    renamed = {"encoder": "auto"} if feature.get("encoder") == "mlp" else {}
    expected = {"policy_type": None} if agent.get("policy_type") == "MlpPolicy" else {}
    return {**document, "feature": {**feature, **renamed}, "agent": {**agent, **expected}}

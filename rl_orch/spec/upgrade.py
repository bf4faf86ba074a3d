"""Resolved specs that earlier releases wrote, in the words of this one. A run keeps its hash."""

from collections.abc import Mapping
from typing import Any

from rl_orch.addresses import is_url


def upgraded(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a resolved spec, which says every option that its release had."""
    return _before_letting_go(_before_engines(_before_encoders(without_address(document))))


def without_address(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document without the address of a database, which was written down once, and with it a
    password."""
    registry = document.get("registry")
    if not isinstance(registry, Mapping) or not is_url(registry.get("db_path")):
        return document
    return {**document, "registry": {**registry, "db_path": None}}


def _before_encoders(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before there were encoders to choose from, `mlp` was the only one, and `MlpPolicy` the only
    policy. What they meant is now said by `auto` and null."""
    feature, agent = document.get("feature"), document.get("agent")
    if not isinstance(feature, Mapping) or "options" in feature or not isinstance(agent, Mapping):
        return document
    renamed = {"encoder": "auto"} if feature.get("encoder") == "mlp" else {}
    expected = {"policy_type": None} if agent.get("policy_type") == "MlpPolicy" else {}
    return {**document, "feature": {**feature, **renamed}, "agent": {**agent, **expected}}


def _before_engines(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before there were kernels, torch trained; a run goes on with what it began with."""
    train = document.get("train")
    if not isinstance(train, Mapping) or "engine" in train:
        return document
    return {**document, "train": {**train, "engine": "torch"}}


def _before_letting_go(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before runs let go of anything, all of it stayed; so it does of those runs."""
    checkpoint = document.get("checkpoint")
    if not isinstance(checkpoint, Mapping) or "keep_training_state" in checkpoint:
        return document
    return {**document, "checkpoint": {**checkpoint, "keep_training_state": "always"}}

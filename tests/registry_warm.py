"""Imported by the server that the actors of a race are forked from: all that they do is done once
here, so that they need not load and build what it takes."""

import tempfile
from pathlib import Path

from rl_orch.errors import RlctlError
from tests.registry_race import Actor


def warm_up() -> None:
    """Do everything a few times, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        actor = Actor(folder / "home", folder / "rlctl.db", 1, folder / "note")
        deeds = (actor.register, actor.validate, actor.force, actor.promote, actor.prune)
        for deed in (*deeds * 3, actor.rollback, actor.unalias, actor.remove):
            try:
                deed()
            except RlctlError:
                continue
        actor.shop.store.close()


warm_up()

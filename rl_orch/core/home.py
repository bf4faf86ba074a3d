"""One home: where it is, its database, and whether it can be written to.

What is done with its runs is in `verbs.py`.
"""

import threading
from pathlib import Path

from rl_orch.core.registry.models import Registry
from rl_orch.core.store.database import DATABASE
from rl_orch.core.store.runs import Store
from rl_orch.core.store.services import Services
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.machine import filesystem


class Home:
    """A folder of runs and the database that knows them, made when it is first written to."""

    def __init__(self, path: Path, database: Path | str | None = None) -> None:
        self.home = path.absolute()
        self.location = _location(database, self.home)
        self._opening = threading.Lock()
        self._opened: tuple[Store, Services] | None = None

    @property
    def store(self) -> Store:
        """Its database."""
        return self._open()[0]

    @property
    def services(self) -> Services:
        """The services that share the database."""
        return self._open()[1]

    @property
    def registry(self) -> Registry:
        """The models in the same database."""
        return Registry(self.store)

    @property
    def exists(self) -> bool:
        """Whether there is a database yet. Who only reads makes none."""
        if isinstance(self.location, str):
            return True
        try:
            return self.location.stat().st_size > 0
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            self._refuse_file()
            return False
        except OSError as error:
            raise RlctlError(
                f"database {str(self.location)!r} cannot be read: {error.strerror}"
            ) from None

    def refuse_unwritable(self) -> None:
        """Raise if nothing can be written in this home, before anything is done for it."""
        if (why := filesystem.unwritable(self.home)) is not None:
            raise filesystem.refusal(self.home, why)
        if self.exists:
            self.store.refuse_unwritable()

    def _refuse_file(self) -> None:
        """Raise if the home, or a folder that it is in, is a file."""
        for path in (self.home, *self.home.parents):
            if path.exists() and not path.is_dir():
                raise BadInput(
                    f"home {str(self.home)!r} cannot be: {str(path)!r} is a file, and no folder",
                    hint="Set RLCTL_HOME, or --home, to a folder.",
                )

    def _open(self) -> tuple[Store, Services]:
        with self._opening:
            if self._opened is None or self._opened[0].outdated:
                self._refuse_file()
                store = Store(self.location)
                if isinstance(self.location, Path) and self.location.is_relative_to(self.home):
                    store.relocate(self.home)
                self._opened = store, Services(store)
            return self._opened


def _location(database: Path | str | None, home: Path) -> Path | str:
    """Location of the database: a file, or the address of a server."""
    if isinstance(database, str) and "://" in database:
        return database
    return Path(database or home / DATABASE).absolute()

"""The worker's log: a constant message, its fields apart, one line each on standard error."""

import logging
import sys
from typing import Any

_LOGGER = logging.getLogger(__name__)


def configure() -> None:
    """Send log lines to standard error, which a runner appends to the run's `log.txt`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def info(message: str, **fields: Any) -> None:
    """Log what happened."""
    _LOGGER.info("%s", " ".join([message, *_pairs(fields)]))


def warning(message: str, **fields: Any) -> None:
    """Log what is worth knowing and stops nothing."""
    _LOGGER.warning("%s", " ".join([message, *_pairs(fields)]))


def error(message: str, **fields: Any) -> None:
    """Log what went wrong."""
    _LOGGER.error("%s", " ".join([message, *_pairs(fields)]))


def exception(message: str, **fields: Any) -> None:
    """Log an error that nobody foresaw, with the traceback that is being handled."""
    _LOGGER.exception("%s", " ".join([message, *_pairs(fields)]))


def _pairs(fields: dict[str, Any]) -> list[str]:
    quoted = {name: repr(value) if " " in str(value) else value for name, value in fields.items()}
    return [f"{name}={value}" for name, value in quoted.items()]

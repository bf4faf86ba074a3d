"""The real command, as in the integration tests."""

from tests.integration.conftest import shell

__all__ = ["shell"]

"""`Uncapturable`: why the state of an environment cannot become data, or come back from it."""


class Uncapturable(Exception):
    """A part of an environment whose state cannot be captured, by path and kind."""


def name_of(kind: type) -> str:
    """A class as its module, where it has one, and name."""
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module is None else f"{module}.{kind.__qualname__}"

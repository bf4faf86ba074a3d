"""`Uncapturable`: why the state of an environment cannot become data, or come back from it."""


class Uncapturable(Exception):
    """A part of an environment whose state cannot be captured or restored; says where and what."""


def name_of(kind: type) -> str:
    """A class as its module and name; some that are not written in Python have no module."""
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module is None else f"{module}.{kind.__qualname__}"

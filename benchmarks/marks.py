"""Puts what was measured between the marks of a page."""

from pathlib import Path

BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"


def fill(page: Path, measured: str) -> None:
    """Replace all that is between the marks of a page."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} lacks {BEGIN} or, after it, {END}; put both where results go")
    page.write_text(f"{before}{BEGIN}\n\n{measured}\n\n{END}{after}", "utf-8")

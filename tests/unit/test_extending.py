"""The page about extending: each block is a whole implementation, and runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
LONGEST = 30
BLOCK = re.compile(r"^## (.+?)$(?:(?!^## ).)*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, str]:
    return dict(BLOCK.findall(PAGE.read_text("utf-8")))


@pytest.mark.parametrize("seam", blocks())
def test_a_block_of_the_page_runs_as_it_stands(
    seam: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks()[seam]
    assert len(code.splitlines()) < LONGEST
    assert "assert" in code or "Contract" in code, "a block shows that it holds"
    exec(compile(code, f"extending.md: {seam}", "exec"), {"__name__": "extending"})  # noqa: S102

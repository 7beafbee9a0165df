"""The programs of the how-to pages run unchanged, each page from its first to its last."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import gpflow
import pytest

DOCS = Path(__file__).parents[2] / "docs"
OTHERS = ("bayesian_optimisation", "ecosystem", "scikit_learn")
PAGES = [*sorted((DOCS / "how_to").glob("*.md")), *(DOCS / f"{name}.md" for name in OTHERS)]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, str]:
    found = {}
    for page in PAGES:
        blocks = [textwrap.dedent(code) for _, code in BLOCK.findall(page.read_text("utf-8"))]
        if blocks:
            found[page.stem] = "\n".join(blocks)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", programs())
def test_program_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with gpflow.config.as_context():
        exec(compile(programs()[page], page, "exec"), {"__name__": "__main__"})

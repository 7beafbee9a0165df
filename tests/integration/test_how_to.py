"""The programs of the documentation run unchanged, each page's from its first to its last."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import gpflow
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "how_to").glob("*.md")])
NOT_RUN = ("experiments",)
"""Programs that need a cluster, or several machines."""
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, str]:
    found = {}
    for page in PAGES:
        if page.stem in NOT_RUN:
            continue
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


def test_links_of_pages_lead_to_pages_and_pictures_of_the_documentation():
    texts = {page: BLOCK.sub("", page.read_text("utf-8")) for page in PAGES}
    links = [(page, link) for page, text in texts.items() for link in LINK.findall(text)]
    assert len(links) >= 60
    targets = {(page.name, link): (page.parent / link).resolve() for page, link in links}
    wrong = [at for at, to in targets.items() if not (to.exists() and to.is_relative_to(DOCS))]
    assert wrong == []

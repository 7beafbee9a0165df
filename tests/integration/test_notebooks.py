"""Every notebook of the documentation runs, from the first cell to the last, in a short form.

`docs/notebooks/shrink.yaml` has smaller values of their constants; the build of the documentation
runs them in full.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
SHRINK = yaml.safe_load((FOLDER / "shrink.yaml").read_text(encoding="utf-8"))
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


def shrunk(notebook: Path) -> str:
    """Return a notebook's source with small constants, each of which it must define once."""
    source = notebook.read_text(encoding="utf-8")
    for name, value in SHRINK[notebook.stem].items():
        source, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value!r}", source)
        assert count == 1, f"{notebook.name} does not set {name} once, at the top level"
    return source


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebook_runs(notebook, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    code = compile(shrunk(notebook), str(notebook), "exec")
    try:
        exec(code, {"__name__": "__main__"})
    finally:
        pyplot.close("all")


def test_every_notebook_is_listed():
    listed = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert set(SHRINK) == {notebook.stem for notebook in NOTEBOOKS}
    for notebook in NOTEBOOKS:
        assert re.search(rf"(?m)^{notebook.stem}$", listed)

"""The report of many runs: a page, and a table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..._core import files
from .page import render
from .ranking import rank
from .runs import read_runs

logger = logging.getLogger("gpflow_gvi")


def report(
    folder: str | Path,
    *,
    output: str | Path | None = None,
    score: str = "nll",
    over: Iterable[str] | None = None,
) -> Path:
    """Write the report of a folder's runs, and return the path of its page.

    Beside the page goes `results.csv`, a row for each run. The folders of the runs are only read.

    :param folder: that of a sweep, or one with folders of runs.
    :param output: the page; by default `report.html` in the folder.
    :param score: the metric that ranks, on the rows for validation.
    :param over: the axes whose levels are repetitions of the same setting; by default
        `split.index`, `seed` and `data.seed`.
    """
    folder = Path(folder)
    runs = read_runs(folder)
    for note in runs.notes:
        logger.warning("%s", note)
    ranking = rank(runs, score=score, over=over)
    best = ranking.places["rank"] == 1
    first = dict(zip(ranking.settings["data"][best], ranking.places["first"][best], strict=True))
    page = folder / "report.html" if output is None else Path(output)
    page.parent.mkdir(parents=True, exist_ok=True)
    html = render(runs, ranking, _figures(folder, first))
    table = runs.table.to_csv(index=False, lineterminator="\r\n")
    for path, content in ((page.with_name("results.csv"), table), (page, html)):
        with files.new_file(path) as stream:
            stream.write(content.encode("utf-8", errors="replace"))
    return page


def _figures(folder: Path, names: Mapping[str, str]) -> dict[str, bytes]:
    """Return the pictures of the runs that have one, by the keys of their names."""
    found = {}
    for key, name in names.items():
        picture = folder / name / "prediction.png"
        # A name from a file must not lead elsewhere.
        if Path(name).name == name and name != ".." and picture.is_file():
            found[key] = picture.read_bytes()
    return found

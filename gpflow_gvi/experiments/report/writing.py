"""The report of many runs: a page, and a table."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..._core import files, progress
from ..._core.quiet import quiet_start
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
    """Return the readable pictures of runs, by the keys of their names."""
    found = {}
    for key, name in names.items():
        if Path(name).name != name or name == "..":  # a name from a file must not lead elsewhere
            continue
        try:
            picture = _figure(folder / name)
        # Models, their data or the disk may fail in any way, and the rest of the report remains.
        except Exception as error:
            logger.warning("There is no figure of %s: %s: %s", name, type(error).__name__, error)
        else:
            if picture is not None:
                found[key] = picture
    return found


def _figure(run: Path) -> bytes | None:
    """Return the picture of a run: its own, or one drawn from its model."""
    picture = run / "prediction.png"
    if picture.is_file():
        return picture.read_bytes()
    if not (run / "model").is_dir():
        return None
    progress.now(f"drawing what {run.name} predicts")
    with quiet_start():
        from ...saving import load as load_model
        from ..config import read
        from ..figures import draw
        from ..run import prepare

    rows = prepare(read(run / "config.yaml")).rows
    with tempfile.TemporaryDirectory() as scratch:
        draw(load_model(run / "model"), rows, Path(scratch))
        picture = Path(scratch) / "prediction.png"
        return picture.read_bytes() if picture.is_file() else None

"""The report of many runs: a page, a table, and a picture of the best fits."""

from __future__ import annotations

import csv
import io
import logging
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .ranking import rank
from .report_page import render
from .report_runs import Run, read_runs, text

logger = logging.getLogger("gpflow_gvi")

PANELS = 10
"""Best fits in one picture."""


def report(
    folder: str | Path,
    *,
    output: str | Path | None = None,
    score: str = "nll",
    over: Iterable[str] | None = None,
) -> Path:
    """Write the report of a folder's runs, and return the path of its page.

    Beside the page go `results.csv`, a row for each run, `results.parquet` if pyarrow is there, and
    `best_fits.png` if matplotlib is and there are figures. The folders of the runs are only read.

    :param folder: that of a sweep, or one with folders of runs.
    :param output: the page; by default `report.html` in the folder.
    :param score: the metric that ranks, on the rows for validation.
    :param over: the axes whose levels are repetitions of the same setting; by default
        `split.index`, `seed` and `data.seed`.
    """
    folder = Path(folder)
    collected = read_runs(folder)
    for note in collected.notes:
        logger.warning("%s", note)
    ranking = rank(collected.runs, score=score, over=over)
    figures = {}
    for data, setting in ranking.best.items():
        figure = _figure(folder, setting.runs[0].name)
        if figure is not None:
            figures[data] = figure
    page = folder / "report.html" if output is None else Path(output)
    page.parent.mkdir(parents=True, exist_ok=True)
    columns = _columns(collected.runs)
    _write(page.with_name("results.csv"), _csv(columns))
    _write(page.with_name("results.parquet"), _parquet(columns))
    titles = {data: f"{data}: test {score} {ranking.best[data].test}" for data in figures}
    _write(page.with_name("best_fits.png"), _composed(figures, titles))
    _write(page, render(collected, ranking, figures).encode())
    return page


def _figure(folder: Path, name: str) -> bytes | None:
    """Return the picture of a run: its own, or one drawn from its model."""
    if Path(name).name != name or name == "..":  # a name from a file must not lead elsewhere
        return None
    picture = folder / name / "prediction.png"
    try:
        if picture.is_file():
            return picture.read_bytes()
        if (folder / name / "model").is_dir():
            return _drawn(folder / name)
    # Models, their data or the disk may fail in any way, and the report is worth having without.
    except Exception as error:
        logger.warning("There is no figure of %s: %s: %s", name, type(error).__name__, error)
    return None


def _drawn(folder: Path) -> bytes | None:
    from ..serialisation import load as load_model
    from .config import read
    from .data import load
    from .figures import draw

    experiment = read(folder / "config.yaml")
    rooms = load(
        experiment.data,
        experiment.split,
        calibration=getattr(experiment.calibration, "fraction", 0.0),
        seed=experiment.seed,
    )
    with tempfile.TemporaryDirectory() as scratch:
        draw(load_model(folder / "model"), rooms, Path(scratch))
        picture = Path(scratch) / "prediction.png"
        return picture.read_bytes() if picture.is_file() else None


def _composed(figures: dict[str, bytes], titles: dict[str, str]) -> bytes | None:
    """Return one picture of several."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.image import imread
    except ImportError:
        return None
    shown = list(figures.items())[:PANELS]
    if not shown:
        return None
    count = -(-len(shown) // 2)
    whole = Figure(figsize=(14.0, 3.8 * count), layout="constrained")
    for panel in (panels := whole.subplots(count, 2, squeeze=False).ravel()):
        panel.axis("off")
    for panel, (data, figure) in zip(panels, shown, strict=False):
        try:
            panel.imshow(imread(io.BytesIO(figure), format="png"))
        except (OSError, SyntaxError) as error:  # the latter is what Pillow says of broken files
            logger.warning("The figure of %s is no picture: %s", data, error)
        panel.set_title(titles[data], fontsize="medium", parse_math=False)
    file = io.BytesIO()
    whole.savefig(file, format="png", dpi=100)
    return file.getvalue()


def _columns(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Return the table of the runs: of each column its values."""
    axes = dict.fromkeys(name for run in runs for name in run.axes)
    columns: dict[str, list[Any]] = {
        "name": [run.name for run in runs],
        "data": [run.data for run in runs],
        "status": ["done" if run.error is None else "failed" for run in runs],
        **{f"axes.{axis}": [run.axes.get(axis) for run in runs] for axis in axes},
    }
    for part in ("validation", "test"):
        for metric in dict.fromkeys(name for run in runs for name in getattr(run, part)):
            values = [getattr(run, part).get(metric) for run in runs]
            columns[f"{part}.{metric}"] = values
    return {
        **columns,
        "seconds": [run.seconds for run in runs],
        "error": [run.error for run in runs],
    }


def _csv(columns: dict[str, list[Any]]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue().encode()


def _parquet(columns: dict[str, list[Any]]) -> bytes | None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return None

    def array(values: list[Any]) -> Any:
        try:
            return pyarrow.array(values)
        except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):  # of several types
            return pyarrow.array([None if value is None else text(value) for value in values])

    file = io.BytesIO()
    parquet.write_table(
        pyarrow.table({name: array(values) for name, values in columns.items()}), file
    )
    return file.getvalue()


def _write(path: Path, content: bytes | None) -> None:
    """Write a file, whole or not at all."""
    if content is None:
        return
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)

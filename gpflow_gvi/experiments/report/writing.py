"""The report of many runs: a page, a table, and a picture of the best fits."""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pandas as pd

from ..._core import files, progress
from ..._core.quiet import quiet_start
from .page import render
from .ranking import rank
from .runs import read_runs, text

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
    runs = read_runs(folder)
    for note in runs.notes:
        logger.warning("%s", note)
    ranking = rank(runs, score=score, over=over)
    best = ranking.places["rank"] == 1
    of_best = ranking.settings["data"][best]
    first = dict(zip(of_best, ranking.places["first"][best], strict=True))
    tests = dict(zip(of_best, ranking.texts[f"test {score}"][best], strict=True))
    figures = _of_runs(folder, first, _figure)
    histories = _of_runs(folder, first, _history)
    page = folder / "report.html" if output is None else Path(output)
    page.parent.mkdir(parents=True, exist_ok=True)
    titles = {data: f"{data}: test {score} {test}" for data, test in tests.items()}
    contents = {
        "results.csv": runs.table.to_csv(index=False, lineterminator="\r\n").encode(),
        "results.parquet": _parquet(runs.table),
        "best_fits.png": _composed(figures, titles),
        page.name: render(runs, ranking, figures, histories).encode(),
    }
    for name, content in contents.items():
        if content is not None:
            with files.new_file(page.with_name(name)) as stream:
                stream.write(content)
    return page


Value = TypeVar("Value")


def _of_runs(
    folder: Path, names: dict[str, str], read: Callable[[Path], Value | None]
) -> dict[str, Value]:
    """Return the readable values of runs, by the keys of their names."""
    found = {}
    for key, name in names.items():
        if Path(name).name != name or name == "..":  # a name from a file must not lead elsewhere
            continue
        try:
            value = read(folder / name)
        # Models, their data or the disk may fail in any way, and the rest of the report remains.
        except Exception as error:
            logger.warning("There is no figure of %s: %s: %s", name, type(error).__name__, error)
        else:
            if value is not None:
                found[key] = value
    return found


def _history(run: Path) -> pd.DataFrame | None:
    """Return the record of each epoch of a training."""
    path = run / "history.csv"
    if not path.is_file():
        return None
    found = pd.read_csv(path, index_col="epoch", dtype=float)
    return found if len(found) > 1 else None


def _figure(run: Path) -> bytes | None:
    """Return the picture of a run: its own, or one drawn from its model."""
    picture = run / "prediction.png"
    if picture.is_file():
        return picture.read_bytes()
    return _drawn(run) if (run / "model").is_dir() else None


def _drawn(folder: Path) -> bytes | None:
    progress.now(f"drawing what {folder.name} predicts")
    with quiet_start():
        from ...saving import load as load_model
        from ..config import read
        from ..figures import draw
        from ..run import prepare

    experiment = read(folder / "config.yaml")
    rows = prepare(experiment).rows
    with tempfile.TemporaryDirectory() as scratch:
        draw(load_model(folder / "model"), rows, Path(scratch))
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


def _parquet(table: pd.DataFrame) -> bytes | None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return None

    def array(values: list[object]) -> pyarrow.Array:
        try:
            return pyarrow.array(values)
        except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):  # of several types
            return pyarrow.array([None if value is None else text(value) for value in values])

    file = io.BytesIO()
    parquet.write_table(pyarrow.table({name: array(table[name].tolist()) for name in table}), file)
    return file.getvalue()

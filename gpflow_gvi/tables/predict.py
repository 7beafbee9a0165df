"""Predictions of a file, written beside its columns a part at a time."""

from __future__ import annotations

from pathlib import Path

from .. import saving
from .._core import checks, progress
from . import table_files
from .model import TableModel

ROWS_AT_ONCE = 20_000
"""The number of rows in memory."""


def predict_file(
    folder: Path,
    path: Path,
    output: Path,
    *,
    coverage: float | None = None,
    size: int = ROWS_AT_ONCE,
) -> int:
    """Write the rows of a file with their predictions, and return their number.

    :param folder: of the model, as `gpflow-gvi learn` wrote it.
    :param path: a file of CSV or Parquet with the columns that were learned from.
    :param output: the file to write, of CSV or Parquet.
    :param coverage: of the intervals of numbers; by default 0.95.
    :param size: how many rows are in memory at once.
    """
    if coverage is not None:
        checks.coverage(coverage)
    table_files.required("pandas")
    progress.now(f"loading {folder}")
    model = saving.load(folder)
    if not isinstance(model, TableModel):
        raise TypeError(
            f"{folder} holds a {type(model).__name__}, which is no model of a table. Give a folder "
            "that gpflow-gvi learn wrote."
        )
    if coverage is not None and model.classes_ is not None:
        raise ValueError(
            f"coverage is {coverage}, which is that of intervals, but {model.target!r} is of "
            "classes, which have probabilities. Leave it out."
        )
    progress.now(f"predicting {path}")
    count = 0
    with table_files.writer(output) as write:
        for table in table_files.chunks(path, size):
            predicted = model.predict(table, 0.95 if coverage is None else coverage)
            taken = [name for name in predicted if name in table]
            if taken:
                raise ValueError(
                    f"{path} has the columns {taken} already, which would be those of the "
                    "predictions. Rename them."
                )
            write(table.join(predicted))
            count += len(table)
            progress.found(rows=count)
    return count

"""Predictions of a file, written beside its columns a part at a time."""

from __future__ import annotations

import collections
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from .. import saving
from .._core import checks, progress
from . import table_files
from .model import TableModel
from .requirements import require_new, required

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 20_000
"""The number of rows in memory."""

DIGITS = 12
"""Those of predictions in CSV: fewer than a number has, as the last are errors of rounding."""


def predict_file(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    coverage: float | None = None,
    size: int = ROWS_AT_ONCE,
    overwrite: bool = False,
) -> int:
    """Write the rows of a file with their predictions, and return their number.

    :param folder: the folder of the model, as `gpflow-gvi learn` wrote it.
    :param coverage: the coverage of the intervals of numbers; by default 0.95.
    :param size: how many rows are in memory at once.
    """
    folder, path, output = Path(folder), Path(path), Path(output)
    if not overwrite:
        require_new(output)
    if coverage is not None:
        checks.coverage(coverage)
    required("pandas")
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
    count, outside = 0, f"{model.target}_outside"
    beyond: collections.Counter[str] = collections.Counter()
    with table_files.writer(output) as write:
        for own, canonical, written in table_files.chunks(path, size, model.written):
            if count == 0:
                model.columns.require_numbers(canonical)
            predicted = model.predict(canonical, 0.95 if coverage is None else coverage)
            taken = [name for name in predicted if name in canonical]
            if taken:
                raise ValueError(
                    f"{path} has the columns {taken} already, which would be those of the "
                    "predictions. Rename them."
                )
            beyond.update(predicted[outside][predicted[outside] != ""])
            if not table_files.is_parquet(output):
                predicted = rounded(predicted)
            write(own, predicted, written)
            count += len(canonical)
            progress.found(rows=count)
    if beyond:
        _warn_of_rows_outside(beyond, count, outside)
    return count


def _warn_of_rows_outside(beyond: collections.Counter[str], count: int, column: str) -> None:
    """Say how many rows are unlike those learned from."""
    listed = ", ".join(f"{names} ({n:,})" for names, n in beyond.most_common(3))
    warnings.warn(
        f"{sum(beyond.values()):,} of {count:,} rows lie beyond all that were learned from, in "
        f"{listed}{', ...' * (len(beyond) > 3)}: nothing like them was seen. The column "
        f"{column} says which.",
        UserWarning,
        stacklevel=3,
    )


def rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose numbers have `DIGITS` significant digits."""
    numbers = table.select_dtypes(include="float")
    return table.assign(
        **{name: column.map(lambda x: float(f"{x:.{DIGITS}g}")) for name, column in numbers.items()}
    )

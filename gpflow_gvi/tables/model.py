"""A model of a table: predictions of a frame, and of a file, beside its columns."""

from __future__ import annotations

import collections
import dataclasses
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gpflow.base import AnyNDArray

from .. import saving
from .._core import checks, graphs, progress
from ..learning import Learned
from ..prediction import by_blocks
from . import table_files
from .columns import Columns
from .dates import Dates
from .encoding import Encoder, Levels
from .requirements import require_new, required
from .table_files import TextFormat

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 20_000
"""The number of rows in memory."""

DIGITS = 12
"""Those of predictions in CSV: fewer than a number has, as the last are errors of rounding."""


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A model learned from a table, with the encoder of its columns.

    It is an estimator for the displays of `plots`, with the names of the encoded columns.
    """

    learned_: Learned
    columns: Columns
    written: TextFormat
    """How the file is written that was learned from, with the names of the columns."""
    encoder: Encoder
    """What makes inputs [N, D] of the columns, and knows the rows that were learned from."""
    target: str
    """The name of the column that is predicted."""
    classes_: AnyNDArray | None
    """The labels, sorted, if they are classes."""

    @property
    def feature_names_in_(self) -> list[str]:
        """The names of the D inputs."""
        return [name for _, name in self.encoder.names()]

    @property
    def feature_groups_(self) -> dict[str, list[int]]:
        """The inputs that each column of the table is made into."""
        return self.encoder.groups(self.columns)

    def inputs(self, table: pd.DataFrame) -> AnyNDArray:
        """Return the inputs of a table with the columns that were learned from: [N, D]."""
        return self.encoder.transform(self.columns.typed(table))

    def predict(self, table: pd.DataFrame, coverage: float = 0.95) -> pd.DataFrame:
        """Return a column for each predicted quantity.

        For numbers these are the mean, standard deviation and ends of the interval of an
        observation; for classes the most probable one and the probability of each. The last column
        names those in which a row lies beyond the rows learned from: its prediction says little.
        """
        typed, name = self.columns.typed(table), self.target
        X = self.encoder.transform(typed)
        if self.classes_ is not None:
            p = self.learned_.predict_proba(X)
            found: dict[str, AnyNDArray] = {f"{name}_label": self.classes_[p.argmax(axis=1)]}
            found |= {f"p({c})": p[:, k] for k, c in enumerate(self.classes_)}
        else:
            names = [f"{name}_{n}" for n in ("mean", "sd", "lower", "upper")]
            found = dict(zip(names, self.numbers(X, coverage), strict=True))
        found[f"{name}_outside"] = self.encoder.outside(typed, self.columns)
        return required("pandas").DataFrame(found, index=table.index)

    def numbers(self, X: AnyNDArray, coverage: float) -> tuple[AnyNDArray, ...]:
        """Return mean, standard deviation and ends of the interval of y at inputs: [N] each."""
        learned = self.learned_
        # Predictors keep the predictions of one block, and need not predict it twice.
        mean, variance, *ends = by_blocks(
            lambda rows: (*learned.predict_y(rows), *learned.predict_interval(rows, coverage)),
            X,
            size=graphs.BLOCK,
        )
        return tuple(part[:, 0] for part in (mean, np.sqrt(variance), *ends))

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write everything to a folder, without pickle, for `gpflow_gvi.load`."""
        saving.save(self, folder, overwrite=overwrite)


SAVED: tuple[type, ...] = (Columns, Dates, Encoder, Levels, TableModel, TextFormat)
"""The classes for `save` and `load`."""


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
        listed = ", ".join(f"{names} ({n:,})" for names, n in beyond.most_common(3))
        warnings.warn(
            f"{sum(beyond.values()):,} of {count:,} rows lie beyond all that were learned from, in "
            f"{listed}{', ...' * (len(beyond) > 3)}: nothing like them was seen. The column "
            f"{outside} says which.",
            UserWarning,
            stacklevel=2,
        )
    return count


def rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose numbers have `DIGITS` significant digits."""
    numbers = table.select_dtypes(include="float")
    return table.assign(
        **{name: column.map(lambda x: float(f"{x:.{DIGITS}g}")) for name, column in numbers.items()}
    )

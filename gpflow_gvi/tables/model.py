"""A model of a table: from columns as they are in a file to predictions as columns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gpflow.base import AnyNDArray

from .. import saving
from .._core import graphs
from ..learning import Learned
from ..prediction import by_blocks
from .columns import Columns
from .dates import Dates
from .encoding import Encoder, Levels
from .requirements import required
from .table_files import TextFormat

if TYPE_CHECKING:
    import pandas as pd


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

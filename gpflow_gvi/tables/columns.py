"""The columns of a table as inputs of a model: numbers, and categories as indicators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from .._core.errors import shown
from .table_files import required

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES = 20
"""Of more values in a column, the rarest are taken for one."""

_TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}


class Columns(NamedTuple):
    """The columns that are used, by their kind: plain data, which can be saved."""

    numbers: list[str]
    categories: list[str]
    left_out: dict[str, str]
    """Those that are not used, and why."""

    @classmethod
    def of(cls, table: pd.DataFrame) -> Columns:
        """Return the columns of a table without its target."""
        types = required("pandas.api.types")
        found = cls([], [], {})
        for name, column in table.items():
            values = column.dropna()
            if values.nunique() < 2:
                found.left_out[str(name)] = "a single value" if len(values) else "empty"
            elif types.is_numeric_dtype(column):
                found.numbers.append(str(name))
            elif types.is_datetime64_any_dtype(column):
                found.left_out[str(name)] = "dates"
            elif values.nunique() > max(MAX_CATEGORIES, 0.5 * len(values)):
                found.left_out[str(name)] = "text that differs from row to row"
            else:
                found.categories.append(str(name))
        if not (found.numbers or found.categories):
            raise ValueError(
                f"no column can be learned from: {found.left_out}. Give columns of numbers, or of "
                "categories that repeat."
            )
        return found

    def encoder(self) -> Any:
        """Return a transformer of scikit-learn, not fitted yet, from `typed` columns to numbers."""
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.preprocessing import OneHotEncoder

        indicators = OneHotEncoder(
            max_categories=MAX_CATEGORIES,
            handle_unknown="infrequent_if_exist",
            drop="if_binary",
            sparse_output=False,
        )
        imputed = SimpleImputer(strategy="median", add_indicator=True)
        parts = [("numbers", imputed, self.numbers), ("categories", indicators, self.categories)]
        return ColumnTransformer(
            [part for part in parts if part[2]], verbose_feature_names_out=False
        )

    def typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns that are used, as numbers or as text; what is missing is NaN.

        Columns of numbers may be text, as they are in a file of CSV.
        """
        missing = [name for name in (*self.numbers, *self.categories) if name not in table]
        if missing:
            raise ValueError(
                f"the table lacks the columns {missing}, which the model was learned from; it has "
                f"{[str(name) for name in table.columns]}."
            )
        found = {name: _numbers(name, table[name]) for name in self.numbers}
        for name in self.categories:
            column = table[name].astype(object)
            found[name] = column.where(column.notna(), "missing").astype(str).to_numpy(object)
        return required("pandas").DataFrame(found, index=table.index)


def _numbers(name: str, column: pd.Series[Any]) -> AnyNDArray:
    """Return a column as numbers: [N]."""
    if not required("pandas.api.types").is_numeric_dtype(column):
        column = column.astype(object).map(lambda value: _TRUTH.get(str(value), value))
    values = required("pandas").to_numeric(column, errors="coerce")
    wrong = column[values.isna() & column.notna()]
    if len(wrong):
        raise ValueError(
            f"column {name} is of numbers, but it has {shown(wrong.iloc[0])} in row "
            f"{wrong.index[0]}. Make it a number, or leave the cell empty where it is not known."
        )
    return np.asarray(values, dtype=float)

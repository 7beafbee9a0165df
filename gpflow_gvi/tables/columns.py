"""The columns of a table as inputs of a model: numbers, and categories as indicators."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core import row_numbers
from .._core.errors import shown
from .names import require_known
from .table_files import required

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

MAX_CATEGORIES = 20
"""Of more values in a column, the rarest are taken for one."""

_TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}


class Columns(NamedTuple):
    """The columns that are used, by their kind: plain data, which can be saved."""

    numbers: list[str]
    categories: list[str]
    left_out: dict[str, str]
    """Those that are not used, and why."""

    suspects: dict[str, str]
    """Those that may number the rows, and why; they are used."""

    @classmethod
    def of(
        cls, table: pd.DataFrame, *, drop: Collection[str] = (), keep: Collection[str] = ()
    ) -> Columns:
        """Return the columns of a table without its target.

        :param drop: those to leave out.
        :param keep: those to use although they seem to number the rows.
        """
        for what, names in (("drop", drop), ("keep", keep)):
            for name in names:
                require_known(what, name, table)
        found = cls([], [], {}, {})
        for name, column in table.items():
            found._add(str(name), column, is_dropped=name in drop, is_kept=name in keep)
        if not (found.numbers or found.categories):
            raise ValueError(
                f"no column can be learned from: {found.left_out}. Give columns of numbers, or of "
                "categories that repeat."
            )
        return found

    def _add(self, name: str, column: pd.Series[Any], *, is_dropped: bool, is_kept: bool) -> None:
        types = required("pandas.api.types")
        values = column.dropna()
        is_number, why = types.is_numeric_dtype(column), None
        if values.nunique() < 2:
            why = "a single value" if len(values) else "empty"
        elif types.is_datetime64_any_dtype(column):
            why = "dates"
        elif not is_number and values.nunique() > max(MAX_CATEGORIES, 0.5 * len(values)):
            why = "text that differs from row to row"
        if is_kept and (why or is_dropped):
            raise ValueError(f"keep names {name!r}, which is {why or 'named in drop as well'}.")
        if is_dropped:
            why = "named in drop"
        elif not why and not is_kept and row_numbers.is_unnamed(name):
            why = "without a header, as row numbers are; keep it if it is none"
        if why:
            self.left_out[name] = why
            return
        (self.numbers if is_number else self.categories).append(name)
        if is_number and not is_kept and (why := row_numbers.suspicion(name, column)):
            self.suspects[name] = why

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

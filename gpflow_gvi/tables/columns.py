"""The columns of a table by what they are: numbers, dates, categories, or nothing to learn from."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core import row_numbers
from ..errors import short_repr
from .dates import Dates
from .requirements import require_columns, require_known, required
from .text_cells import NO_NUMBER, NO_TEXT, TRUTH, without

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

MAX_CATEGORIES = 20
"""Beyond this number of values in a column the rarest have one indicator, and a number each."""


class Columns(NamedTuple):
    """The columns that are used, by their kind: plain data, which can be saved."""

    numbers: list[str]
    categories: list[str]
    left_out: dict[str, str]
    """The columns that are not used, and why."""

    dates: dict[str, Dates]
    suspects: dict[str, str]
    """The columns that may number the rows, and why; they are used."""
    no_numbers: dict[str, list[str]]
    """Cells that are no numbers, by columns of numbers; they are treated as missing."""

    @classmethod
    def of(
        cls,
        table: pd.DataFrame,
        *,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        is_day_first: bool = False,
    ) -> Columns:
        """Return the columns of a table without its target.

        :param drop: those to leave out.
        :param keep: those to use although they seem to number the rows.
        :param is_day_first: how dates are read where they do not tell day from month.
        """
        require_known("drop", drop, table)
        require_known("keep", keep, table)
        found = cls([], [], {}, {}, {}, {})
        for name, column in table.items():
            given = {"is_dropped": name in drop, "is_kept": name in keep}
            found._add(str(name), column, is_day_first=is_day_first, **given)
        if not (found.numbers or found.categories or found.dates):
            why = [f"{name!r} ({reason})" for name, reason in found.left_out.items()]
            said = ", ".join(why) or "there is none beside the target"
            raise ValueError(
                f"no column can be learned from: {said}. Give columns of numbers, or of categories "
                "that repeat."
            )
        return found

    def _add(
        self,
        name: str,
        column: pd.Series[Any],
        *,
        is_day_first: bool,
        is_dropped: bool,
        is_kept: bool,
    ) -> None:
        values = without(NO_NUMBER, column).dropna()
        numbers = _numbers_or_nan(values)
        is_number, dates = _is_of_numbers(values, numbers), None
        if not is_number and values.nunique() > 1:
            dates = Dates.of(column, is_day_first=is_day_first)
        if not (is_number or dates):
            values = without(NO_TEXT, column).dropna()
        why = None
        has_ticks = 1 < len(values) < len(column)  # a value or none is as good as two values
        if values.nunique() < 2 - has_ticks:
            why = "a single value" if len(values) else "empty"
        elif not (is_number or dates) and values.nunique() > max(MAX_CATEGORIES, 0.5 * len(values)):
            why = "text that differs from row to row"
        if is_kept and (why or is_dropped):
            raise ValueError(f"keep names {name!r}, which is {why or 'named in drop as well'}.")
        if is_dropped:
            why = "named in drop"
        elif not why and not is_kept and row_numbers.is_unnamed(name):
            why = "without a header, as row numbers are; keep it if it is none"
        if why:
            self.left_out[name] = why
        elif dates is not None:
            self.dates[name] = dates
        elif not is_number:
            self.categories.append(name)
        else:
            self.numbers.append(name)
            require_finite(f"column {name!r}", numbers, values)
            if wrong := sorted(set(map(str, values[np.isnan(numbers)]))):
                self.no_numbers[name] = wrong
            elif not is_kept and (why := row_numbers.suspicion(name, _numbers_or_nan(column))):
                self.suspects[name] = why

    @property
    def named_suspects(self) -> dict[str, str]:
        """The columns that may number the rows for each reason, in words."""
        return row_numbers.named(self.suspects)

    @property
    def used(self) -> list[str]:
        """The names of the columns that are used."""
        return [*self.numbers, *self.dates, *self.categories]

    @property
    def encoded_numbers(self) -> list[str]:
        """The numbers that `typed` has, with those that are made of dates."""
        return [*self.numbers, *self.homes]

    @property
    def homes(self) -> dict[str, str]:
        """The column of dates that each number is made of, by the number's name."""
        return {made: name for name, each in self.dates.items() for made in each.names(name)}

    def require_numbers(self, table: pd.DataFrame) -> None:
        """Raise if a column of numbers has other cells alone: it is another than was learned from.

        :param table: the rows of a file, or the first of them.
        """
        require_columns(self.numbers, table)
        for name in self.numbers:
            column = without(NO_NUMBER, table[name])
            known = column[column.notna() & ~column.astype(str).isin(self.no_numbers.get(name, ()))]
            if len(known) and np.all(np.isnan(_numbers_or_nan(known))):
                raise ValueError(
                    f"column {name} is of numbers, but it has {short_repr(known.iloc[0])} in row "
                    f"{known.index[0]} and no number at all. Give the column of that name that the "
                    "model was learned from, or leave the cells empty."
                )

    def typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns that are used, as numbers or as text; what is missing is NaN.

        Columns of numbers may be text, as they are in a file of CSV. What is no number is missing,
        with a warning where it was not so in the rows that were learned from.
        """
        frame = required("pandas").DataFrame
        if not isinstance(table, frame):
            raise TypeError(
                f"table is a {type(table).__name__}; it must be a DataFrame of pandas, as "
                "pandas.DataFrame(table) makes of a dictionary and table.to_pandas() of polars."
            )
        require_columns(self.used, table)
        found = {
            name: _numbers(name, table[name], self.no_numbers.get(name, ()))
            for name in self.numbers
        }
        for name, dates in self.dates.items():
            found |= dict(zip(dates.names(name), dates.numbers(table[name]), strict=True))
        for name in self.categories:
            column = without(NO_TEXT, table[name]).astype(object)
            found[name] = column.where(column.notna(), "missing").astype(str).to_numpy(object)
        return frame(found, index=table.index)


def _numbers_or_nan(column: pd.Series[Any]) -> AnyNDArray:
    """Return a column as numbers, NaN where a cell is none: [N]."""
    column = in_seconds(column)
    if not required("pandas.api.types").is_numeric_dtype(column):
        column = column.astype(object).map(lambda value: TRUTH.get(str(value), value))
    return np.asarray(required("pandas").to_numeric(column, errors="coerce"), dtype=float)


def in_seconds(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of durations as numbers, and any other as it is."""
    return column.dt.total_seconds() if column.dtype.kind == "m" else column


def _is_of_numbers(values: pd.Series[Any], numbers: AnyNDArray) -> bool:
    """Whether a column is of numbers: most cells are, and they repeat less than codes do."""
    types, values = required("pandas.api.types"), in_seconds(values)
    if types.is_numeric_dtype(values) or types.is_datetime64_any_dtype(values):
        return bool(types.is_numeric_dtype(values))
    known = numbers[~np.isnan(numbers)]
    if len(known) == len(values):
        return bool(len(known))
    distinct = len(np.unique(known))
    return len(known) > 0.5 * len(values) and distinct > min(MAX_CATEGORIES, 0.5 * len(values))


def require_finite(what: str, numbers: AnyNDArray, cells: pd.Series[Any]) -> None:
    """Raise if one of the numbers in cells, both [N], is infinite."""
    infinite = cells[np.isinf(numbers)]
    if len(infinite):
        others = f" (and in {len(infinite) - 1} others)" * (len(infinite) > 1)
        raise ValueError(
            f"{what} has {infinite.iloc[0]} in row {infinite.index[0]}{others}, which is not "
            "finite. Make it a finite number, or leave the cell empty where it is not known."
        )


def slips(name: str, cells: pd.Series[Any], kind: str = "numbers") -> str:
    """Return a message on cells of a column of numbers, or of dates, that are none."""
    return (
        f"column {name!r} is of {kind}, but {len(cells)} of its cells are not, the first "
        f"{short_repr(cells.iloc[0])} in row {cells.index[0]}: they are treated as missing. "
        "Correct them if they are not."
    )


def _numbers(name: str, column: pd.Series[Any], no_numbers: Collection[str]) -> AnyNDArray:
    """Return a column as numbers, NaN where it has a text that is none: [N].

    :param no_numbers: the texts that were warned of before.
    """
    column = without(NO_NUMBER, column)
    found = _numbers_or_nan(column)
    wrong = column[np.isnan(found) & column.notna().to_numpy()]
    wrong = wrong[~wrong.astype(str).isin(list(no_numbers))]
    if len(wrong):
        warnings.warn(slips(name, wrong), UserWarning, stacklevel=5)
    require_finite(f"column {name!r}", found, column)
    return found

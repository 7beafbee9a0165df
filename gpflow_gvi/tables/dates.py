"""Columns of dates as numbers: a trend, and times of year, week and day where rows resolve them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .requirements import required

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}
"""Their lengths in days."""

_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}(?:[-./]\d{1,4})?(?:[ T]\d.*)?")
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y/%m/%d")
FORMATS = ("ISO8601", *(day + time for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S")))
"""Ways to write a date; the first that fits all cells of a column is taken."""


class Dates(NamedTuple):
    """A column of dates: plain data, which can be saved."""

    format: str
    periods: list[str]
    """Those that the rows resolve."""

    @classmethod
    def of(cls, column: pd.Series[Any]) -> Dates | None:
        """Return the format of the dates in a column, or None if it holds other text."""
        if required("pandas.api.types").is_datetime64_any_dtype(column):
            return cls("", _resolved(_days(column, "")))
        known = column.dropna()
        if not all(_DATE.fullmatch(str(text)) for text in known.iloc[:100]):
            return None
        for written in FORMATS:
            days = _days(column, written)
            if np.isnan(days).sum() == column.isna().sum():
                return cls(written, _resolved(days))
        return None

    def days(self, column: pd.Series[Any]) -> AnyNDArray:
        """Return the days since 1970, NaN where there is no date: [N]."""
        days = _days(column, self.format)
        wrong = column[np.isnan(days) & column.notna().to_numpy()]
        if len(wrong):
            raise ValueError(
                f"column {column.name} is of dates, but it has {wrong.iloc[0]!r} in row "
                f"{wrong.index[0]}, which is not written as the others are. Correct it, or leave "
                "the cell empty."
            )
        return days

    def names(self, name: str) -> list[str]:
        """Return the names of the numbers that are made of a column."""
        waves = [f"{name} (time of {p}, {w})" for p in self.periods for w in ("sine", "cosine")]
        return [f"{name} (trend)", *waves]

    def numbers(self, column: pd.Series[Any]) -> list[AnyNDArray]:
        """Return them: the year with its decimals, and sine and cosine of each period: [N] each."""
        days = self.days(column)
        angles = [2.0 * np.pi * days / PERIODS[period] for period in self.periods]
        waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
        return [1970.0 + days / PERIODS["year"], *waves]


def _days(column: pd.Series[Any], written: str) -> AnyNDArray:
    pandas = required("pandas")
    options = {"format": written} if written else {}
    times = pandas.to_datetime(column, errors="coerce", utc=True, **options)
    start = pandas.Timestamp("1970-01-01", tz="UTC")
    return np.asarray((times - start) / pandas.Timedelta(days=1), dtype=float)


def _resolved(days: AnyNDArray) -> list[str]:
    """Return the periods that dates cover once and sample twice (Nyquist)."""
    distinct = np.unique(days[~np.isnan(days)])
    if len(distinct) < 2:
        return []
    span, gap = distinct[-1] - distinct[0], np.diff(distinct).min()
    return [name for name, length in PERIODS.items() if gap <= 0.5 * length <= 0.5 * span]

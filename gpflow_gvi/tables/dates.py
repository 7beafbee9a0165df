"""Columns of dates as numbers: a trend, and times of year, week and day where rows resolve them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .requirements import required
from .text_cells import NO_NUMBER, without

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}
"""Their lengths in days."""

_DATE = re.compile(
    r"(?:\d{1,4}[-./]\d{1,2}(?:[-./]\d{1,4})?"
    r"|(?:\d{1,2}[- ])?[A-Za-z]{3,9}[- ](?:\d{1,2}, )?\d{4})(?:[ T]\d.*)?"
)
_NUMBERED = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%Y/%m/%d")
_NAMED = ("%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%b %Y", "%b-%Y", "%d %B %Y", "%B %d, %Y", "%B %Y")
_ISO = "ISO8601"
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMATS = (_ISO, *(day + time for day in (*_NUMBERED, *_NAMED) for time in _TIMES))
"""Ways to write a date; the one that fits most cells of a column is taken, but see `Dates.of`."""

NUM_TRIED = 100
"""The number of cells that are tried with every format."""

_DAY_FIRST = {"%m/%d/%Y": "%d/%m/%Y", "%m-%d-%Y": "%d-%m-%Y"}
"""The format with the day first, by that with the month first."""


class Dates(NamedTuple):
    """A column of dates: plain data, which can be saved."""

    format: str
    periods: list[str]
    """Those that the rows resolve."""
    no_dates: list[str]
    """Cells that are not written so, in the column that it was found in: they are missing."""

    @classmethod
    def of(cls, column: pd.Series[Any], *, is_day_first: bool = False) -> Dates | None:
        """Return the format of most cells of a column, or None if half of them are other text.

        Where day and month may be either, they are what makes the dates go in order with the rows,
        or in even steps.

        :param is_day_first: what is taken where neither tells.
        """
        pandas = required("pandas")
        is_of_times = pandas.api.types.is_datetime64_any_dtype(column)
        if is_of_times or isinstance(column.dtype, pandas.PeriodDtype):
            return cls(_ISO, _resolved(_days(column, _ISO)), [])
        known = without(NO_NUMBER, column).dropna()
        tried = known.iloc[:NUM_TRIED]
        if sum(bool(_DATE.fullmatch(str(text))) for text in tried) <= 0.5 * len(tried):
            return None
        fits = {written: ~np.isnan(_days(tried, written)) for written in FORMATS}
        likely = [written for written, fit in fits.items() if 2 * fit.sum() > len(tried)]
        read = {written: _days(known, written) for written in likely}
        written = min(read, key=lambda each: np.isnan(read[each]).sum(), default=_ISO)
        if not read or 2 * np.isnan(read[written]).sum() >= len(known):
            return None
        written, days = _ordered(known, written, read[written], is_day_first)
        return cls(written, _resolved(days), sorted(set(map(str, known[np.isnan(days)]))))

    @property
    def order(self) -> str:
        """The order of day and month in words, empty where the format leaves no doubt."""
        orders = dict.fromkeys(_DAY_FIRST, "month/day/year")
        orders |= dict.fromkeys(_DAY_FIRST.values(), "day/month/year")
        return orders.get(self.format.partition(" ")[0], "")

    def is_guessed(self, column: pd.Series[Any]) -> bool:
        """Whether nothing in the column that it was found in tells day from month."""
        if not self.order:
            return False
        readings = [Dates.of(column, is_day_first=is_day_first) for is_day_first in (False, True)]
        return readings[0] != readings[1]

    def days(self, column: pd.Series[Any]) -> AnyNDArray:
        """Return the days since 1970, NaN where there is no date: [N]."""
        column = without(NO_NUMBER, column)
        days = _days(column, self.format)
        wrong = column[np.isnan(days) & column.notna().to_numpy()]
        wrong = wrong[~wrong.astype(str).isin(self.no_dates)]
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
    if isinstance(column.dtype, pandas.PeriodDtype):
        column = column.dt.to_timestamp()
    times = pandas.to_datetime(column, format=written, errors="coerce", utc=True)
    start = pandas.Timestamp("1970-01-01", tz="UTC")
    return np.asarray((times - start) / pandas.Timedelta(days=1), dtype=float)


def _ordered(
    column: pd.Series[Any], written: str, days: AnyNDArray, is_day_first: bool
) -> tuple[str, AnyNDArray]:
    """Return a format and its days, with the day before the month if it seems to be so.

    A column without a day after the twelfth, or one that is the same either way, leaves both open.
    """
    day, *time = written.split(" ", 1)
    other = " ".join([_DAY_FIRST.get(day, day), *time])
    swapped = _days(column, other) if other != written else None
    if swapped is None or not np.array_equal(np.isnan(swapped), np.isnan(days)):
        return written, days
    for is_likely in (_is_in_order, _is_even):
        if is_likely(swapped) != is_likely(days):
            is_day_first = is_likely(swapped)
            break
    return (other, swapped) if is_day_first else (written, days)


def _is_in_order(days: AnyNDArray) -> bool:
    steps = np.diff(days[~np.isnan(days)])
    return bool(np.all(steps >= 0.0) or np.all(steps <= 0.0))


def _is_even(days: AnyNDArray) -> bool:
    """Whether a typical step from one date to the next is at least half of the mean step.

    It is half or more of it even for dates at random, but not for the months of many years that are
    taken for days of January.
    """
    steps = np.diff(np.unique(days[~np.isnan(days)]))
    return bool(len(steps) == 0 or np.median(steps) >= 0.5 * steps.mean())


def _resolved(days: AnyNDArray) -> list[str]:
    """Return the periods that dates cover once and sample twice (Nyquist)."""
    distinct = np.unique(days[~np.isnan(days)])
    if len(distinct) < 2:
        return []
    span, gap = distinct[-1] - distinct[0], np.diff(distinct).min()
    return [name for name, length in PERIODS.items() if gap <= 0.5 * length <= 0.5 * span]

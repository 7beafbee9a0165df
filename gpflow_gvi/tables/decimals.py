"""Which of comma and point stands before decimals: what columns of numbers tell, and the file."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .requirements import required
from .text_cells import AROUND, NO_NUMBER, canonical_number, is_text, without

if TYPE_CHECKING:
    import pandas as pd

_OTHER = {",": ".", ".": ","}

_COMMA = re.compile(
    r"(?![1-9]\d{0,2}(?:,\d{3})+(?!\d))[\d.]*,\d+"  # 3,5 or 0,125 or 1.234,567
    r"|[1-9]\d{0,2}(?:\.\d{3}){2}"  # 1.234.567
)
_POINT = re.compile(
    r"(?![1-9]\d{0,2}(?:\.\d{3})+(?!\d))[\d,]*\.\d+"  # 3.5 or 0.125 or 1,234.567
    r"|[1-9]\d{0,2}(?:,\d{3}){2}"  # 1,234,567
)
_CERTAIN = {",": _COMMA, ".": _POINT}
_OPEN = {",": re.compile(r"[1-9]\d{0,2},\d{3}"), ".": re.compile(r"[1-9]\d{0,2}\.\d{3}")}


class Decimals(NamedTuple):
    """The marks before the decimals in a file."""

    mark: str = "."
    others: tuple[str, ...] = ()
    """The columns where it is the other one of comma and point."""

    def of(self, column: str) -> str:
        """Return the mark of a column."""
        return _OTHER[self.mark] if column in self.others else self.mark


@dataclasses.dataclass
class _Column:
    """What the cells of a column tell."""

    known: int = 0
    numbers: int = 0
    longest: int = 0
    """The digits of a number without any mark."""
    certain: dict[str, str] = dataclasses.field(default_factory=dict)
    """A cell for each mark that it shows to be before decimals."""
    open: dict[str, str] = dataclasses.field(default_factory=dict)
    """A cell for each mark that may as well set thousands apart."""
    mixed: set[str] = dataclasses.field(default_factory=set)
    """The marks that are in other cells, too."""

    def add(self, cells: pd.Series[Any]) -> None:
        """Take in a part of the column, which is text."""
        known = without(NO_NUMBER, cells).dropna()
        is_plain = required("pandas").to_numeric(known, errors="coerce").notna()
        self.known += len(known)
        self.numbers += int(is_plain.sum())
        for text, count in known[~is_plain].value_counts(sort=False).items():
            self.numbers += count * self._is_number(text)
        for text in known[is_plain].unique():
            if "." in self.certain:  # which is all that numbers of Python can tell
                break
            self._is_number(text)

    def _is_number(self, text: str) -> bool:
        """Whether a cell is a number; it is taken in."""
        cell, is_number = text.strip(AROUND), False
        if cell.isdecimal():
            self.longest = max(self.longest, len(cell))
            return True
        for mark in _OTHER:
            if _CERTAIN[mark].fullmatch(cell):
                self.certain.setdefault(mark, text)
                is_number = True
            if mark in cell:
                if _OPEN[mark].fullmatch(cell):
                    self.open.setdefault(mark, text)
                    is_number = True
                else:
                    self.mixed.add(mark)
        return is_number or any(_read(text, mark) != "text" for mark in _OTHER)

    @property
    def is_of_numbers(self) -> bool:
        """Whether most cells are numbers; the marks in mere text, lists and dates tell nothing."""
        return 2 * self.numbers > self.known

    def has_thousands(self, mark: str) -> bool:
        """Whether numbers of four digits have a mark and those of three have none."""
        return mark in self.open and mark not in self.mixed and self.longest == 3


def decimals_of(
    parts: Iterable[pd.DataFrame],
    names: Collection[str],
    separator: str,
    usual: Decimals | None = None,
) -> Decimals:
    """Return the decimal marks of a table of text in parts, and warn of numbers that are at odds.

    A column tells it by numbers such as 3,5 or 0,125 or 1.234.567. Where there are only such as
    1,234 it is as in the columns that tell; if none does, or they differ, it is the usual one. If
    none is known, that is a comma if columns are set apart by semicolons, as they are where the
    comma is taken, and commas are in numbers, or points are what sets thousands apart.

    :param names: the columns that are looked at.
    :param usual: those of another file that is written so.
    """
    columns: dict[str, _Column] = {name: _Column() for name in names}
    for part in parts:
        for name in part.columns.intersection(list(names)):
            if is_text(part[name]):
                columns[name].add(part[name])
    columns = {name: column for name, column in columns.items() if column.is_of_numbers}
    told = {name: next(iter(c.certain)) for name, c in columns.items() if len(c.certain) == 1}
    if usual is None:
        usual = Decimals(
            "," if separator == ";" and any(map(_may_have_commas, columns.values())) else "."
        )
        if usual.mark == ".":
            told |= {name: "." for name, c in columns.items() if c.has_thousands(",")}
    unlike = [name for name, mark in told.items() if mark != usual.of(name)]
    if unlike and len(unlike) == len(told):  # the file is written in the other way
        usual, unlike = usual._replace(mark=_OTHER[usual.mark]), []
    # Cells with commas are quoted between commas: beside decimal points they are lists.
    own = {} if unlike and (separator, usual.mark) == (",", ".") else told
    others = [name for name in names if own.get(name, usual.of(name)) != usual.mark]
    made = Decimals(usual.mark, tuple(others))
    both = [name for name, column in columns.items() if len(column.certain) == 2]
    if unlike or both:
        alike = [name for name in told if name not in unlike][: bool(unlike)]
        _warn_of({name: columns[name] for name in (*both, *unlike, *alike)}, made)
    return made


def has_commas(table: pd.DataFrame) -> bool:
    """Whether there is text that is a number with a decimal comma."""
    texts = (column.dropna().unique() for _, column in table.items() if is_text(column))
    return any(_COMMA.fullmatch(text.strip(AROUND)) for column in texts for text in column)


def _may_have_commas(column: _Column) -> bool:
    """Whether commas may be before decimals, where they are not what sets columns apart."""
    return "," in column.certain or "," in column.open or column.has_thousands(".")


def _read(text: str, mark: str) -> str:
    """Return a number as it is read, or the word "text" for what is none."""
    with contextlib.suppress(ValueError):
        float(number := canonical_number(text, mark))
        return number
    return "text"


def _warn_of(columns: dict[str, _Column], made: Decimals) -> None:
    parts = []
    for name, column in columns.items():
        cells = list(column.certain.values()) or [column.open[","]]
        read = [f"{cell!r} (read as {_read(cell, made.of(name))})" for cell in cells]
        parts.append(f"column {name!r} has {' and '.join(read)}")
    warnings.warn(
        f"some numbers have a decimal comma and some a decimal point: {', '.join(parts)}. Write "
        "all of them in one way if that is wrong.",
        UserWarning,
        stacklevel=5,
    )

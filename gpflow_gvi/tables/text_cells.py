"""Numbers as people write them: with a decimal comma, thousands, a percent sign, in brackets.

Words such as "NA" are missing numbers or dates, and may be categories among others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .requirements import required

if TYPE_CHECKING:
    import pandas as pd

TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
NO_TEXT = frozenset({"nan", "NaN", "-nan", "-NaN", "NA", "<NA>", "#N/A"})
"""What programs write for text that is missing: NumPy, R, pandas and spreadsheets."""

NO_NUMBER = NO_TEXT | {
    *("#N/A N/A", "#NA", "N/A", "n/a", "NULL", "null", "None"),
    *("-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"),
}
"""What stands for a missing number, as pandas reads it; in text it may mean something."""

_CURRENCY = "$€£¥"
_SPACES = " \u00a0\u202f"  # thousands are also set apart by spaces that do not break


def _pattern(decimal: str, group: str) -> re.Pattern[str]:
    whole = rf"\d{{1,3}}(?:[{group}'’{_SPACES}]\d{{3}})+|\d*"
    return re.compile(
        rf"([+−-]?)[{_SPACES}]?[{_CURRENCY}]?[{_SPACES}]?({whole})(?:{decimal}(\d*))?"
        rf"([eE][+-]?\d+)?[{_SPACES}]?[%{_CURRENCY}]?"
    )


_NUMBER = {".": _pattern(r"\.", ","), ",": _pattern(",", r"\.")}
_COMMA = re.compile(r"(?![1-9]\d{0,2}(?:,\d{3})+(?!\d))[\d.]*,\d+")
_COMMA_OR_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")
_POINT = re.compile(r"(?![1-9]\d{0,2}(?:\.\d{3})+(?!\d))[\d,]*\.\d+")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_MILLIONS = {mark: re.compile(rf"[1-9]\d{{0,2}}(?:{mark}\d{{3}}){{2}}") for mark in (",", r"\.")}


def decimal_of(parts: Iterable[pd.DataFrame], separator: str, usual: str | None = None) -> str:
    """Return the decimal separator, "." or ",", of a table of text in parts.

    A comma is, where numbers such as 3,5 or 1.234.567 occur, and none such as 3.5 or 1,234,567. If
    there are only numbers such as 1,234 it is the usual one; where none is known, a comma if
    columns are set apart by semicolons, as they are where the comma is taken, or points are what
    sets thousands apart there.
    """
    found = usual or "."
    for part in parts:
        if _has(_POINT, part, ".") or _has(_MILLIONS[","], part, ","):
            return "."
        if has_commas(part, "" if usual else separator):
            found = ","
    return found


def has_commas(table: pd.DataFrame, separator: str) -> bool:
    """Whether commas in text may be before decimals."""
    if _has(_COMMA, table, ",") or _has(_MILLIONS[r"\."], table, "."):
        return True
    return separator == ";" and (
        _has(_COMMA_OR_THOUSANDS, table, ",")
        or any(_sets_thousands_apart(table[[name]]) for name in table)
    )


def _sets_thousands_apart(column: pd.DataFrame) -> bool:
    """Whether points do so in a column: numbers of four digits and more have one, others none."""
    cells = list(_cells(column, ""))
    pointed = [cell for cell in cells if "." in cell]
    longest = max((len(cell) for cell in cells if cell.isdigit()), default=0)
    return bool(pointed) and longest == 3 and all(map(_THOUSANDS.fullmatch, pointed))


def _has(numbers: re.Pattern[str], table: pd.DataFrame, mark: str) -> bool:
    """Whether one of the cells that have a mark is such a number."""
    return any(map(numbers.fullmatch, _cells(table, mark)))


def _cells(table: pd.DataFrame, mark: str) -> Iterator[str]:
    """Yield the different cells that have a mark, without sign, currency and percent sign."""
    for _, column in table.items():
        if _is_text(column):
            known = column.dropna()
            for cell in known[known.str.contains(mark, regex=False)].unique():
                yield cell.strip(f"+−-%(){_CURRENCY}{_SPACES}")


def without(words: Collection[str], column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column in which cells of text are missing if they are among words."""
    return column.mask(column.isin(list(words))) if _is_text(column) else column


def _is_text(column: pd.Series[Any]) -> bool:
    return bool(required("pandas.api.types").is_string_dtype(column.dropna()))


def canonical(table: pd.DataFrame, decimal: str) -> pd.DataFrame:
    """Return a table whose text has numbers written as Python does, and the rest as it is."""
    to_numeric = required("pandas").to_numeric
    found = {}
    for name, cells in table.items():
        # Levels that pandas keeps although no row has them are none of the table.
        column = cells.astype(object) if cells.dtype == "category" else cells
        known = column.dropna()
        if not _is_text(column):
            found[name] = column
            continue
        if decimal == ".":
            known = known[to_numeric(known, errors="coerce").isna()]
        written = {text: _canonical(text, decimal) for text in known.unique()}
        changed = {text: new for text, new in written.items() if text != new}
        found[name] = (
            column.map(lambda text, new=changed: new.get(text, text)) if changed else column
        )
    return required("pandas").DataFrame(found, index=table.index)


def _canonical(text: str, decimal: str) -> str:
    cell = text.strip()
    is_loss = cell.startswith("(") and cell.endswith(")")  # as accountants write what is below zero
    match = _NUMBER[decimal].fullmatch(cell[1:-1] if is_loss else cell)
    if not match or not (match[2] or match[3]) or (is_loss and match[1]):
        return text
    sign, whole, part, power = (group or "" for group in match.groups())
    digits, sign = re.sub(r"\D", "", whole) or "0", "-" if is_loss else sign
    return sign.replace("−", "-") + digits + (f".{part}" if part else "") + power


def typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of canonical text as numbers or truth values, if it is of such alone."""
    cells = without(NO_NUMBER, column)
    known = cells.dropna()
    if not len(known) or not _is_text(column):
        return column
    if set(known.unique()) <= TRUTH.keys():
        found = cells.map(TRUTH)
        return found.astype(bool) if len(known) == len(column) else found
    numbers = required("pandas").to_numeric(cells, errors="coerce")
    return column if numbers[cells.notna()].isna().any() else numbers

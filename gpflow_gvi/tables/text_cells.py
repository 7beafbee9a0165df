"""Numbers as people write them: with a decimal comma, thousands, a percent sign, in brackets.

Words such as "NA" are missing numbers or dates, and may be categories among others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
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

AROUND = f"+−-%(){_CURRENCY}{_SPACES}"
"""What may stand before and behind the digits of a number."""


def _pattern(decimal: str, group: str) -> re.Pattern[str]:
    whole = rf"[1-9]\d{{0,2}}(?:[{group}'’{_SPACES}]\d{{3}})+|\d*"
    return re.compile(
        rf"([+−-]?)[{_SPACES}]?[{_CURRENCY}]?[{_SPACES}]?({whole})(?:{decimal}(\d*))?"
        rf"([eE][+-]?\d+)?[{_SPACES}]?[%{_CURRENCY}]?"
    )


_NUMBER = {".": _pattern(r"\.", ","), ",": _pattern(",", r"\.")}


def without(words: Collection[str], column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column in which cells of text are missing if they are among words."""
    return column.mask(column.isin(list(words))) if is_text(column) else column


def is_text(column: pd.Series[Any]) -> bool:
    """Whether the cells of a column are text, as far as there are any."""
    return bool(required("pandas.api.types").is_string_dtype(column.dropna()))


def canonical(table: pd.DataFrame, decimal: Callable[[str], str]) -> pd.DataFrame:
    """Return a table whose text has numbers written as Python does, and the rest as it is.

    :param decimal: a function of the name of a column, which returns its decimal mark.
    """
    to_numeric = required("pandas").to_numeric
    found = {}
    for name, cells in table.items():
        # Levels that pandas keeps although no row has them are none of the table.
        column = cells.astype(object) if cells.dtype == "category" else cells
        known, mark = column.dropna(), decimal(str(name))
        if not is_text(column):
            found[name] = column
            continue
        if mark == ".":
            known = known[to_numeric(known, errors="coerce").isna()]
        written = {text: canonical_number(text, mark) for text in known.unique()}
        changed = {text: new for text, new in written.items() if text != new}
        found[name] = (
            column.map(lambda text, new=changed: new.get(text, text)) if changed else column
        )
    return required("pandas").DataFrame(found, index=table.index)


def canonical_number(text: str, decimal: str) -> str:
    """Return a number as Python writes it, and other text as it is."""
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
    if not len(known) or not is_text(column):
        return column
    if set(known.unique()) <= TRUTH.keys():
        found = cells.map(TRUTH)
        return found.astype(bool) if len(known) == len(column) else found
    numbers = required("pandas").to_numeric(cells, errors="coerce")
    return column if numbers[cells.notna()].isna().any() else numbers

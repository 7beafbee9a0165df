"""Text that is safe to open in a spreadsheet, which takes some for formulas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,]+$)")
"""The beginnings that OWASP names ("CSV injection"), but not that of a number."""


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose names and text begin with an apostrophe where they would be formulas."""
    texts = table.select_dtypes(exclude="number")
    escaped = {name: column.map(_escaped) for name, column in texts.items()}
    return table.assign(**escaped).rename(columns=_escaped)


def _escaped(value: object) -> object:
    return f"'{value}" if _FORMULA.match(str(value)) else value

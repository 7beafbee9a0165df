"""Columns that number or identify rows: from one, a model learns where a row stands in its file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_NAMED = 3
"""As many columns are named at most; the others are counted."""

MIN_ROWS = 7
"""Fewer numbers may well ascend or descend by chance; that of seven do is 2 / 7! < 0.0005."""

_UNNAMED = re.compile(
    r"\s*|Unnamed: \d+.*|__index_level_\d+__|\.\.\.\d+|row[._ ]?names?", re.IGNORECASE
)
_IDENTIFIER = re.compile(
    r"(?i:(?:.*[_.\- ])?id|idx|index|row|row[_ ]?(?:id|nr|num|number)|[ug]uid)|.*[a-z0-9]I[dD]"
)


def is_unnamed(name: Any) -> bool:
    """Whether a name is one that pandas or R give to a column of row numbers or row names."""
    return _UNNAMED.fullmatch(str(name)) is not None


def suspicion(name: Any, values: Any) -> str | None:
    """Return why a column of numbers may number or identify the rows, or None if it does not.

    :param name: the name of the column.
    :param values: the values of the column, [N]; NaN where one is missing.
    """
    values = np.asarray(values, dtype=float)
    if not np.array_equal(values[~np.isnan(values)], np.round(values[~np.isnan(values)])):
        return None
    if _IDENTIFIER.fullmatch(str(name)):
        return "its name is that of an identifier"
    if len(values) < MIN_ROWS or not np.all(np.isfinite(values)):
        return None
    steps = np.diff(values)
    if np.all(steps > 0.0) or np.all(steps < 0.0):
        return "it is another whole number in each row, and in order"
    return None


def named(suspects: Mapping[Any, str]) -> dict[str, str]:
    """Return the columns that are suspected for each reason in words, as "column 'id'".

    :param suspects: the reason for each column.
    """
    found: dict[str, str] = {}
    for why in dict.fromkeys(suspects.values()):
        names = [repr(name) for name, reason in suspects.items() if reason == why]
        what = "column " if len(names) == 1 else "columns "
        others = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        found[why] = what + ", ".join(names[:MAX_NAMED]) + others
    return found


def warn(X: Any, stacklevel: int = 3) -> None:
    """Warn of columns of a data frame that may number or identify its rows."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    suspects: dict[Any, str] = {}
    for name in X.columns:
        values = np.asarray(X[name])
        if values.ndim == 1 and values.dtype.kind in "iuf":
            why = "it has no name" if is_unnamed(name) else suspicion(name, values)
            suspects |= {} if why is None else {name: why}
    for why, columns in named(suspects).items():
        warnings.warn(
            f"X has the {columns}, which may number the rows or identify them ({why}): what is "
            "learned from it does not carry over to new rows. Leave it out, by "
            "X.drop(columns=...), unless it is a quantity.",
            UserWarning,
            stacklevel=stacklevel,
        )

"""Names of columns that a user gives."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def require_known(what: str, name: str, columns: Iterable[object]) -> None:
    """Raise unless a table has a column, naming those that are alike, or else all.

    :param what: the argument that names the column.
    :param name: the column.
    :param columns: the names of all columns.
    """
    names = [str(column) for column in columns]
    if name in names:
        return
    lowered = {each.lower(): each for each in names}
    alike = [lowered[each] for each in difflib.get_close_matches(name.lower(), lowered)]
    remedy = f"its columns are {names}"
    if alike:
        remedy = f"did you mean {' or '.join(map(repr, alike))}?"
    raise ValueError(f"{what} {name!r} is no column of the table; {remedy}")


def require_columns(used: Iterable[str], columns: Iterable[object]) -> None:
    """Raise unless a table has all columns that a model was learned from."""
    names = [str(column) for column in columns]
    missing = [name for name in used if name not in names]
    if missing:
        raise ValueError(
            f"the table lacks the columns {missing}, which the model was learned from; it has "
            f"{names}."
        )

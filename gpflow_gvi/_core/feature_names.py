"""Names of columns: what was learned from some takes no table of others, nor in another order."""

from __future__ import annotations

from typing import Any

from ..errors import short_repr


def of(X: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a table, or None if X has none or some are no text."""
    found = getattr(X, "column_names", getattr(X, "columns", None))  # of Arrow, or of others
    if found is None or callable(found):
        return None
    names = tuple(found)
    return tuple(map(str, names)) if names and all(isinstance(n, str) for n in names) else None


def require_of(model: Any, X: Any) -> None:
    """Raise if X is a table of other columns than those that a model has learned from."""
    names = getattr(model, "feature_names_in_", None)
    require("X", X, None if names is None else tuple(names))


def require(name: str, X: Any, names: tuple[str, ...] | None) -> None:
    """Raise if X is a table whose columns have other names, or are in another order.

    :param name: what to call X in the message.
    :param names: those of the columns that were learned from; None if they had none.
    """
    given = None if names is None else of(X)
    if names is None or given is None or given == names:
        return
    lacking = [each for each in names if each not in given]
    without = f" and not {short_repr(lacking)}" if lacking else ""
    raise ValueError(
        f"{name} has the columns {short_repr(list(given))}{without}, but what was learned from has "
        f"{short_repr(list(names))}, in this order. Pass these alone, in this order, or an array "
        "without names."
    )

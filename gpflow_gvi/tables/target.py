"""The target of a table: numbers to regress, or classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import shown
from .checks import require_known, required
from .columns import has_lists

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

Task = Literal["regression", "classification"]

MAX_NUMBERED_CLASSES = 10
"""Whole numbers with more distinct values are not treated as classes, unless a task is named."""

MAX_NAMED_CLASSES = 100
"""Text with more distinct values is not treated as classes."""


def target_of(
    table: pd.DataFrame, name: str, task: Task | None
) -> tuple[AnyNDArray, AnyNDArray, Task]:
    """Return a mask of the rows with a target, [N], their targets, and the task.

    :param table: the table.
    :param name: the column.
    :param task: what it is; recognised if not given.
    """
    require_known("target", [name], table)
    known = table[name].notna().to_numpy()
    column = table[name][known]
    if not len(column):
        raise ValueError(f"target {name!r} is empty in every row.")
    if has_lists(column):
        raise ValueError(
            f"target {name!r} has lists in cells, such as {shown(column.iloc[0])}. Give a number "
            "or the name of a class in each row: a column for each number of the lists."
        )
    types = required("pandas.api.types")
    is_number = types.is_numeric_dtype(column) and not types.is_bool_dtype(column)
    distinct = column.unique()
    if len(distinct) < 2:
        raise ValueError(f"target {name!r} is {distinct[0]} in every row: nothing to learn.")
    if task is None:
        few = is_number and len(distinct) <= MAX_NUMBERED_CLASSES
        whole = few and np.array_equal(distinct, np.round(distinct.astype(float)))
        has_slips = not is_number and _distinct_numbers(column) > MAX_NUMBERED_CLASSES
        task = "regression" if has_slips or not (whole or not is_number) else "classification"
    if task == "regression":
        return known, _numbers(name, column, is_number), task
    if not is_number and len(distinct) > MAX_NAMED_CLASSES:
        raise ValueError(
            f"target {name!r} is text of {len(distinct)} different values such as "
            f"{shown(distinct[0])}: neither numbers nor classes. Correct what should be numbers, "
            "or name another column."
        )
    return known, _labels(name, column, is_number), task


def _distinct_numbers(column: pd.Series[Any]) -> int:
    """Return the number of distinct numbers, or 0 if at least half of the cells are none."""
    numbers = required("pandas").to_numeric(column, errors="coerce")
    return int(numbers.nunique()) if numbers.notna().mean() > 0.5 else 0


def _numbers(name: str, column: pd.Series[Any], is_number: bool) -> AnyNDArray:
    if not is_number:
        wrong = column[required("pandas").to_numeric(column, errors="coerce").isna()]
        raise ValueError(
            f"target {name!r} has {shown(wrong.iloc[0])} in row {wrong.index[0]}, which is not "
            f"a number: {len(wrong)} of its {len(column)} cells are not, and regression needs "
            "numbers. Correct them or leave them empty; or pass --task classification, or name "
            "another column."
        )
    return np.asarray(column, dtype=float)


def _labels(name: str, column: pd.Series[Any], is_number: bool) -> AnyNDArray:
    counts = column.value_counts()
    if counts.min() < 2:
        raise ValueError(
            f"target {name!r} has a class with a single row, {shown(counts.index[-1])}. "
            "Leave it out, or pass --task regression if these are numbers."
        )
    if is_number:
        values = np.asarray(column, dtype=float)
        return values.astype(int) if np.array_equal(values, np.round(values)) else values
    return np.asarray(column.astype(str), dtype=str)

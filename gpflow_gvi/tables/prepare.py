"""A table made ready to be learned from: read, recognised and checked, without TensorFlow."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from .._core import progress
from ..errors import short_repr
from . import table_files
from .columns import Columns, in_seconds, require_finite, slips
from .dates import Dates
from .requirements import require_known, required
from .table_files import TextFormat
from .text_cells import NO_NUMBER, NO_TEXT, without

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

Predictor = Literal[
    "auto", "none", "hist_gradient_boosting", "random_forest", "extra_trees", "ridge"
]
Split = Literal["random", "time"]
Task = Literal["regression", "classification"]

HELD_OUT = 0.2
"""The part of the rows that is scored with by default."""

MIN_HELD_OUT = 2
"""Fewer rows are not scored with."""

MAX_NUMBERED_CLASSES = 10
"""Whole numbers with more distinct values are not treated as classes, nor those of which one is in
a single row, unless a task is named."""

MAX_NAMED_CLASSES = 100
"""Text with more distinct values is not treated as classes, nor text of which most are in a single
row."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Rows with a target, and what their columns are."""

    table: pd.DataFrame
    """Without the target."""
    target: str
    y: AnyNDArray
    """The target: [N]."""
    task: Task
    columns: Columns
    written: TextFormat
    """How the file is written, with the names of the columns that are used."""
    num_held_out: int
    by_time: str | None
    """The column of dates whose last rows are held out; at random without one."""
    predictor: Predictor


def prepare(
    path: Path,
    target: str,
    *,
    predictor: Predictor = "auto",
    task: Task | None = None,
    held_out: float | None = None,
    split: Split | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
) -> Prepared:
    """Return the content of a file, or raise with the reason why it cannot be learned from.

    The parameters are those of `learn_table`.
    """
    is_number = isinstance(held_out, Real)  # `checks` would import TensorFlow
    if held_out is not None and not (is_number and 0.0 <= held_out < 1.0):
        raise ValueError(
            f"held-out is {held_out!r}; it must be a number of at least 0 and less than 1."
        )
    given = (("task", task, Task), ("split", split, Split), ("predictor", predictor, Predictor))
    for what, chosen, allowed in given:
        if chosen not in (None, *get_args(allowed)):
            raise ValueError(f"{what} is {chosen!r}; it must be one of {get_args(allowed)}.")
    drop, keep = ([each] if isinstance(each, str) else each for each in (drop, keep))
    progress.now(f"reading {path}")
    table, form = table_files.read(path)
    require_known("target", [target], table)
    for what, names in (("drop", drop), ("keep", keep)):
        if target in names:
            raise ValueError(f"{what} names {target!r}, which is the target. Leave it out there.")
    if str(form):
        progress.found(written=str(form))
    known, y, task = target_of(table, target, task)
    table = table[known].drop(columns=target)
    columns = Columns.of(table, drop=drop, keep=keep, is_day_first=form.is_day_first)
    if split == "time" and not columns.dates:
        raise ValueError("split is 'time', but no column is of dates. Leave it out.")
    count = round((HELD_OUT if held_out is None else held_out) * len(y))
    count = count if count >= MIN_HELD_OUT else 0
    by_time = None if split == "random" else _column_of_time(columns, table, count, split)
    facts = _recognised(columns, known, y, task)
    if by_time and count:
        facts["held out"] = f"the last rows by {by_time} (or pass --split random)"
    progress.found(**facts)
    _warn_of(columns, table)
    if held_out and not count:
        raise ValueError(
            f"held-out is {held_out}, which is less than {MIN_HELD_OUT} of the {len(y)} rows with "
            "a target. Hold out more, or 0 to score with none."
        )
    if task == "classification" and predictor not in ("auto", "none"):
        raise ValueError(f"predictor {predictor} is for regression; {target!r} is of classes.")
    written = form._replace(names=tuple(columns.used))
    return Prepared(table, target, y, task, columns, written, count, by_time, predictor)


def last_rows(columns: Columns, table: pd.DataFrame, name: str, count: int) -> AnyNDArray:
    """Return a mask of about as many rows, the last by a column of dates: [N].

    Rows of one date stay together; those without a date come first.
    """
    days = np.nan_to_num(columns.dates[name].days(table[name]), nan=-np.inf)
    start = np.sort(days)[-count]
    masks = days >= start, days > start
    return min(masks, key=lambda mask: (mask.all() or not mask.any(), abs(mask.sum() - count)))


def _column_of_time(
    columns: Columns, table: pd.DataFrame, count: int, split: Split | None
) -> str | None:
    """Return the column of dates whose last rows are held out.

    There is none by default where that leaves fewer rows to learn from than are held out, as where
    all of a file was written at about the same time.
    """
    name = next(iter(columns.dates), None)
    if name is None or split == "time" or not count:
        return name
    is_last = last_rows(columns, table, name, count)
    return name if is_last.any() and 2 * is_last.sum() <= len(is_last) else None


def _warn_of(columns: Columns, table: pd.DataFrame) -> None:
    """Warn of columns that mislead, or that have slips."""
    messages = [
        f"{suspects} may number the rows or identify them ({why}): what is learned from it does "
        "not carry over to new rows. Drop it, or keep it by name if it is a quantity."
        for why, suspects in columns.named_suspects.items()
    ]
    messages += [
        slips(name, table[name][table[name].isin(texts)])
        for name, texts in columns.no_numbers.items()
    ]
    messages += [
        slips(name, table[name][table[name].isin(each.no_dates)], "dates")
        for name, each in columns.dates.items()
        if each.no_dates
    ]
    messages += [
        f"column {name!r} has dates such as {table[name].dropna().iloc[0]!r}, which are read as "
        f"{each.order}: nothing in them tells which it is. Write them as 2016-02-01 if it is not."
        for name, each in columns.dates.items()
        if each.is_guessed(table[name])
    ]
    for message in messages:
        warnings.warn(message, UserWarning, stacklevel=4)


def _recognised(columns: Columns, known: AnyNDArray, y: AnyNDArray, task: Task) -> dict[str, Any]:
    """Return the facts recognised in a table, to be reported."""
    facts: dict[str, Any] = {"rows": len(y), "target": "numbers (regression)"}
    if task == "classification":
        names, counts = np.unique(y, return_counts=True)
        listed, rare = map(_first_of, (names, names[counts == 1]))
        remedy = "; or pass --task regression" if y.dtype.kind in "if" else ""
        facts["target"] = f"{len(names)} classes ({listed}{remedy})"
        if rare:
            facts["classes of a single row"] = rare
    if not known.all():
        facts["rows without target"] = int(np.sum(~known))
    facts |= {"columns of numbers": len(columns.numbers), "of categories": len(columns.categories)}
    if columns.dates:
        facts["of dates"] = ", ".join(
            name + f" (read as {each.order})" * bool(each.order)
            for name, each in columns.dates.items()
        )
    if columns.left_out:
        facts["left out"] = "; ".join(f"{name} ({why})" for name, why in columns.left_out.items())
    return facts


def _first_of(names: AnyNDArray) -> str:
    return " ".join(map(str, names[:5])) + " ..." * (len(names) > 5)


def target_of(
    table: pd.DataFrame, name: str, task: Task | None
) -> tuple[AnyNDArray, AnyNDArray, Task]:
    """Return a mask of the rows with a target, [N], their targets, and the task."""
    column = in_seconds(table[name])
    has_slips = _distinct_numbers(without(NO_NUMBER, column)) > MAX_NUMBERED_CLASSES
    if task is None and has_slips:
        task = "regression"
    column = without(NO_NUMBER if task == "regression" else NO_TEXT, column)
    known = column.notna().to_numpy()
    column = column[known]
    if not len(column):
        raise ValueError(f"target {name!r} is empty in every row.")
    types = required("pandas.api.types")
    is_text = task != "classification" and not types.is_numeric_dtype(column)
    if types.is_datetime64_any_dtype(column) or (is_text and Dates.of(column)):
        raise ValueError(
            f"target {name!r} is of dates. Give them as numbers, such as the days since the first, "
            "or name another column."
        )
    is_number = types.is_numeric_dtype(column) and not types.is_bool_dtype(column)
    counts = column.value_counts()
    distinct, num_single = column.unique(), int(np.sum(counts == 1))
    if len(distinct) < 2:
        raise ValueError(f"target {name!r} is {distinct[0]} in every row: nothing to learn.")
    if task is None:
        few = is_number and len(distinct) <= MAX_NUMBERED_CLASSES and not num_single
        whole = few and np.array_equal(distinct, np.round(distinct.astype(float)))
        task = "regression" if is_number and not whole else "classification"
    if task == "regression":
        return known, _as_numbers(name, column), task
    are_no_classes = 2 * num_single > len(distinct)
    if is_number and are_no_classes:
        raise ValueError(
            f"target {name!r} has {len(distinct)} different values, most of them in a single row: "
            "they are no classes. Pass --task regression, or name another column."
        )
    if not is_number and (are_no_classes or len(distinct) > MAX_NAMED_CLASSES):
        raise ValueError(
            f"target {name!r} is text of {len(distinct)} different values such as "
            f"{short_repr(distinct[0])}: neither numbers nor classes. Write what should be numbers "
            "as numbers alone, without a unit, or name another column."
        )
    return known, _as_labels(name, column, is_number), task


def _distinct_numbers(column: pd.Series[Any]) -> int:
    """Return the number of distinct numbers, or 0 if at least half of the cells are none."""
    column = column.dropna()
    numbers = required("pandas").to_numeric(column, errors="coerce")
    return int(numbers.nunique()) if numbers.notna().mean() > 0.5 else 0


def _as_numbers(name: str, column: pd.Series[Any]) -> AnyNDArray:
    numbers = np.asarray(required("pandas").to_numeric(column, errors="coerce"), dtype=float)
    require_finite(f"target {name!r}", numbers, column)
    wrong = column[np.isnan(numbers)]
    if len(wrong):
        raise ValueError(
            f"target {name!r} has {short_repr(wrong.iloc[0])} in row {wrong.index[0]}, which is "
            f"not a number: {len(wrong)} of its {len(column)} cells are not, and regression needs "
            "numbers. Write them as numbers alone, without a unit, or leave them empty; or pass "
            "--task classification, or name another column."
        )
    return numbers


def _as_labels(name: str, column: pd.Series[Any], is_number: bool) -> AnyNDArray:
    if is_number:
        values = np.asarray(column, dtype=float)
        require_finite(f"target {name!r}", values, column)
        if np.array_equal(values, np.round(values)):
            return values.astype(int)
    return np.asarray(column.astype(str), dtype=str)

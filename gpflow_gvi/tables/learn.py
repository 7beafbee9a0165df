"""From a file to a model of its table, with scores for rows that were held out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from .._core import progress
from ..integrations.sklearn import GVIClassifier, GVIRegressor
from ..learning import Effort, left_out_together, with_names
from .encoding import Encoder
from .model import TableModel
from .prepare import Predictor, Prepared, Task, last_rows, prepare
from .scores import Scores

if TYPE_CHECKING:
    import pandas as pd


_PREDICTORS: dict[Predictor, Any] = {
    "auto": lambda seed: "auto",
    "none": lambda seed: None,
    "hist_gradient_boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "random_forest": lambda seed: RandomForestRegressor(random_state=seed),
    "extra_trees": lambda seed: ExtraTreesRegressor(random_state=seed),
    "ridge": lambda seed: RidgeCV(np.logspace(-3.0, 3.0, 13)),
}
"""Functions of a seed."""


class Outcome(NamedTuple):
    """A model, and how it predicts rows that it has not seen."""

    model: TableModel
    task: Task
    rows: pd.DataFrame
    """The rows that it was fitted to."""
    held_out: tuple[pd.DataFrame, AnyNDArray] | None
    """The rows, and their targets."""
    scores: Scores | None
    """The scores of the held-out rows."""
    by_time: str | None = None
    """The column of dates whose last rows these are, if they are not any rows."""

    def __str__(self) -> str:
        """Return the verdict, the scores and the summary, as text."""
        summary = str(self.model.learned_.summary())
        return summary if self.scores is None else f"{self.scores}\n\n{summary}"


def learn_table(
    path: str | os.PathLike[str],
    target: str,
    *,
    effort: Effort = "default",
    seed: int = 0,
    loss: Literal["robust"] | None = None,
    **options: Any,
) -> Outcome:
    """Learn to predict one column of a table from the others.

    :param target: the column; rows without it are left out.
    :param effort: as of `learn`.
    :param seed: the seed of everything held out, and of `learn`.
    :param loss: "robust" to find outliers of a target of numbers, and to learn without them.
    :param options: `predictor`, the name of a `Predictor`, for regression; `task`,
        "regression" or "classification", recognised if not given; `held_out`,
        the part of the rows to score with and not to learn from, 0 for none, by default a fifth, or
        none where that is less than two rows; `split`, "random", or "time" for the last rows, the
        default where a column is of dates; `drop`, columns to leave out; `keep`, columns to learn
        from although they seem to number the rows.
    """
    prepared = prepare(Path(path), target, **options)
    return learn_prepared(prepared, effort=effort, seed=seed, loss=loss)


def learn_prepared(
    prepared: Prepared,
    *,
    effort: Effort = "default",
    seed: int = 0,
    loss: Literal["robust"] | None = None,
) -> Outcome:
    """Learn from a table that `prepare` has read; the parameters are those of `learn_table`."""
    predictor = _PREDICTORS[prepared.predictor](seed)
    table, y, task, columns = prepared.table, prepared.y, prepared.task, prepared.columns
    typed = columns.typed(table)
    if loss is not None and task == "classification":
        raise ValueError(
            f"loss {loss} is for a target of numbers; {prepared.target!r} is of classes. Leave it "
            "out."
        )
    fitting, unseen = _split(prepared, typed, seed)
    kind = GVIRegressor if task == "regression" else GVIClassifier
    estimator: Any = kind(predictor=predictor, loss=loss, effort=effort, random_state=seed)
    typed = typed.iloc[fitting]
    encoder = Encoder.of(typed, columns)
    estimator.fit(encoder.transform(typed), y[fitting])
    learned = with_names(estimator.learned_, tuple(name for _, name in encoder.names()))
    of_table = (columns, prepared.written, encoder, prepared.target)
    model = TableModel(learned, *of_table, getattr(estimator, "classes_", None))
    if not len(unseen):
        return Outcome(model, task, table.iloc[fitting], None, None)
    rows, observed = table.iloc[unseen], y[unseen]
    progress.now(f"scoring {len(unseen)} rows held out")
    scores = Scores.of(model, rows, observed, y[fitting])
    return Outcome(model, task, table.iloc[fitting], (rows, observed), scores, prepared.by_time)


def _split(prepared: Prepared, typed: pd.DataFrame, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the numbers of the rows to learn from, and of those to score with.

    :param typed: the columns that are used, as `Columns.typed` has them.
    """
    y, count, rows = prepared.y, prepared.num_held_out, np.arange(len(prepared.y))
    if not count:
        return rows, rows[:0]
    if prepared.by_time is not None:
        is_last = last_rows(prepared.columns, prepared.table, prepared.by_time, count)
        fitting, unseen = np.flatnonzero(~is_last), np.flatnonzero(is_last)
    else:
        groups = rows
        if typed.duplicated().any():
            groups = left_out_together(Encoder.of(typed, prepared.columns).transform(typed))
        fitting, unseen = _at_random(prepared, groups, seed)
    if len(np.unique(y[fitting])) < 2:
        raise ValueError(
            f"target {prepared.target!r} is {y[fitting][0]} in every row but those held out. Hold "
            "out others: by another seed, or at random if they are the last in time."
        )
    return fitting, unseen


def _at_random(prepared: Prepared, groups: AnyNDArray, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Return all rows but some at random, and these; the rows of a group stay together."""
    rows, count = np.arange(len(groups)), prepared.num_held_out
    _, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    is_small = sizes <= count  # larger groups are learned from
    if prepared.task == "classification":  # and so are the classes of a single row
        _, of_row, of_class = np.unique(prepared.y, return_inverse=True, return_counts=True)
        is_small &= ~np.isin(groups[first], groups[of_class[of_row] == 1])
    first, num_rows = first[is_small], np.sum(sizes[is_small])
    if len(first) < 2:
        return _at_random(prepared, rows, seed)
    count = min(max(1, round(count * len(first) / num_rows)), len(first) - 1)
    y = prepared.y[first]
    classes, of_class = np.unique(y, return_counts=True)
    is_even = len(classes) <= min(count, len(y) - count) and np.min(of_class) > 1
    by = y if is_even and prepared.task == "classification" else None
    fitting, unseen = train_test_split(first, test_size=count, random_state=seed, stratify=by)
    if len(first) == len(rows):
        return fitting, unseen
    is_unseen = np.isin(groups, groups[unseen])
    return rows[~is_unseen], rows[is_unseen]

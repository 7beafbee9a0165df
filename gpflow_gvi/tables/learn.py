"""From a file to a model of its table, with scores for rows that were held out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from .. import metrics
from .._core import checks, progress
from ..integrations.sklearn import GVIClassifier, GVIRegressor
from ..learning.settings import Effort
from . import table_files
from .columns import Columns
from .model import TableModel
from .target import Task, target_of

if TYPE_CHECKING:
    import pandas as pd

PREDICTORS: dict[str, Any] = {
    "auto": lambda seed: "auto",
    "none": lambda seed: None,
    "hist_gradient_boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "random_forest": lambda seed: RandomForestRegressor(random_state=seed),
    "extra_trees": lambda seed: ExtraTreesRegressor(random_state=seed),
    "ridge": lambda seed: RidgeCV(np.logspace(-3.0, 3.0, 13)),
}
"""What P may be around, by the names of the command line."""


HELD_OUT = 0.2
"""The part of the rows that is scored with by default."""

MIN_HELD_OUT = 2
"""Fewer rows are not scored with."""


class Outcome(NamedTuple):
    """A model, and how it predicts rows that it has not seen."""

    model: TableModel
    task: Task
    num_rows: int
    """Those that it was fitted to."""
    held_out: tuple[pd.DataFrame, AnyNDArray] | None
    """The rows, and their targets."""
    scores: dict[str, tuple[float, float]]
    """Of the held-out rows: those of the model, and those of a prediction without any inputs."""

    def __str__(self) -> str:
        """Return the summary and the scores, as text."""
        lines = [str(self.model.learned_.summary())]
        if self.held_out is not None:
            head = f"{len(self.held_out[1])} rows held out"
            lines += ["", f"{head:<24}{'model':>10}{'no inputs':>12}"]
            lines += [f"{n:<24}{own:>10.4g}{base:>12.4g}" for n, (own, base) in self.scores.items()]
        return "\n".join(lines)


def learn_table(
    path: Path,
    target: str,
    *,
    task: Task | None = None,
    predictor: str = "auto",
    effort: Effort = "default",
    held_out: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Learn to predict one column of a table from the others.

    :param path: a file of CSV or Parquet.
    :param target: the column; rows without it are left out.
    :param task: "regression" or "classification"; recognised if not given.
    :param predictor: one of `PREDICTORS`, for regression.
    :param effort: as of `learn`.
    :param held_out: the part of the rows to score with, and not to learn from; 0 for none. By
        default a fifth, or none where that is less than two rows.
    :param seed: of what is held out, and of `learn`.
    """
    if held_out is not None:
        checks.fraction("held-out", held_out)
    if predictor not in PREDICTORS:
        raise ValueError(f"predictor is {predictor!r}; it must be one of {', '.join(PREDICTORS)}.")
    progress.now(f"reading {path}")
    table = table_files.read(path)
    known, y, task = target_of(table, target, task)
    table = table[known].drop(columns=target)
    if task == "classification" and predictor not in ("auto", "none"):
        raise ValueError(f"predictor {predictor} is for regression; {target!r} is of classes.")
    columns = Columns.of(table)
    progress.found(**_recognised(columns, known, y, task))
    if held_out and _count(held_out, y) < MIN_HELD_OUT:
        raise ValueError(
            f"held-out is {held_out}, which is less than {MIN_HELD_OUT} of the {len(y)} rows with "
            "a target. Hold out more, or 0 to score with none."
        )
    fitting, unseen = _split(y, task, HELD_OUT if held_out is None else held_out, seed)
    kind = GVIRegressor if task == "regression" else GVIClassifier
    estimator: Any = kind(predictor=PREDICTORS[predictor](seed), effort=effort, random_state=seed)
    typed = columns.typed(table.iloc[fitting])
    encoder = columns.encoder().fit(typed)
    estimator.fit(np.asarray(encoder.transform(typed), dtype=float), y[fitting])
    classes = getattr(estimator, "classes_", None)
    model = TableModel(estimator.learned_, columns, encoder, target, classes)
    if not len(unseen):
        return Outcome(model, task, len(fitting), None, {})
    rows, observed = table.iloc[unseen], y[unseen]
    progress.now(f"scoring {len(unseen)} rows held out")
    scores = _scores(model, rows, observed, y[fitting])
    return Outcome(model, task, len(fitting), (rows, observed), scores)


def _recognised(
    columns: Columns, known: AnyNDArray, y: AnyNDArray, task: Task
) -> dict[str, int | str]:
    """Return what was recognised in a table, to be said."""
    facts: dict[str, int | str] = {"rows": len(y), "target": "numbers (regression)"}
    if task == "classification":
        names = np.unique(y)
        listed = " ".join(map(str, names[:5])) + " ..." * (len(names) > 5)
        facts["target"] = f"{len(names)} classes ({listed}; or pass --task regression)"
        if y.dtype.kind not in "if":
            facts["target"] = f"{len(names)} classes ({listed})"
    if not known.all():
        facts["rows without target"] = int(np.sum(~known))
    facts |= {"columns of numbers": len(columns.numbers), "of categories": len(columns.categories)}
    if columns.left_out:
        listed = "; ".join(f"{name} ({why})" for name, why in columns.left_out.items())
        facts["left out"] = listed
    return facts


def _count(held_out: float, y: AnyNDArray) -> int:
    return round(held_out * len(y))


def _split(y: AnyNDArray, task: Task, held_out: float, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the numbers of the rows to learn from, and of those to score with."""
    rows = np.arange(len(y))
    if _count(held_out, y) < MIN_HELD_OUT:
        return rows, rows[:0]
    by = y if task == "classification" else None
    if by is not None and _count(held_out, y) < len(np.unique(y)):
        by = None  # not all classes fit in
    fitting, unseen = train_test_split(rows, test_size=held_out, random_state=seed, stratify=by)
    is_known = np.isin(y[unseen], y[fitting]) | (task == "regression")
    return fitting, unseen[is_known]


def _scores(
    model: TableModel, table: pd.DataFrame, y: AnyNDArray, seen: AnyNDArray
) -> dict[str, tuple[float, float]]:
    """Return the scores of held-out rows, each with that of a prediction from no inputs."""
    X = model.inputs(table)
    if model.classes_ is not None:
        labels = np.searchsorted(model.classes_, y)
        shares = np.unique(seen, return_counts=True)[1] / len(seen)
        own = metrics.evaluate(model.learned_, (X, labels))
        at = (labels, np.broadcast_to(shares, (len(y), len(shares))))
        names = ("nll", "accuracy", "ece")
        return {n: (own[n], metrics.CLASS_METRICS[n].function(at)) for n in names}
    Y = y[:, None]
    own = metrics.evaluate(model.learned_, (X, Y))
    mean, variance = np.full_like(Y, seen.mean()), np.full_like(Y, seen.var())
    half = 1.96 * np.sqrt(variance)
    base = {
        "nll": metrics.nll(Y, mean, variance),
        "rmse": metrics.rmse(Y, mean),
        "coverage": metrics.coverage(Y, mean - half, mean + half),
        "width": metrics.width(mean - half, mean + half),
    }
    lower, upper = (np.asarray(end) for end in model.learned_.predict_interval(X))
    own |= {"coverage": metrics.coverage(Y, lower, upper), "width": metrics.width(lower, upper)}
    names_shown = {"coverage": "coverage of 95 %", "width": "width of these"}
    return {names_shown.get(name, name): (own[name], value) for name, value in base.items()}

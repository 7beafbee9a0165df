"""A table made ready to be learned from: read, recognised and checked, without TensorFlow."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import progress
from . import table_files
from .columns import Columns
from .predictors import PREDICTORS
from .target import Task, target_of

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

HELD_OUT = 0.2
"""The part of the rows that is scored with by default."""

MIN_HELD_OUT = 2
"""Fewer rows are not scored with."""


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
    num_held_out: int


def prepare(
    path: Path,
    target: str,
    *,
    task: Task | None = None,
    predictor: str = "auto",
    held_out: float | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
) -> Prepared:
    """Return what a file holds, or raise saying what cannot be learned from.

    The parameters are those of `learn_table`.
    """
    if held_out is not None and not 0.0 <= held_out < 1.0:
        raise ValueError(f"held-out is {held_out}; it must be at least 0 and less than 1.")
    if predictor not in PREDICTORS:
        raise ValueError(f"predictor is {predictor!r}; it must be one of {', '.join(PREDICTORS)}.")
    progress.now(f"reading {path}")
    table = table_files.read(path)
    known, y, task = target_of(table, target, task)
    table = table[known].drop(columns=target)
    if task == "classification" and predictor not in ("auto", "none"):
        raise ValueError(f"predictor {predictor} is for regression; {target!r} is of classes.")
    columns = Columns.of(table, drop=drop, keep=keep)
    progress.found(**_recognised(columns, known, y, task))
    for name, why in columns.suspects.items():
        warnings.warn(
            f"column {name!r} may number the rows or identify them ({why}): then what is learned "
            "from it is of no use for new rows. Drop it, or keep it by name if it is a quantity.",
            UserWarning,
            stacklevel=3,
        )
    count = round((HELD_OUT if held_out is None else held_out) * len(y))
    if held_out and count < MIN_HELD_OUT:
        raise ValueError(
            f"held-out is {held_out}, which is less than {MIN_HELD_OUT} of the {len(y)} rows with "
            "a target. Hold out more, or 0 to score with none."
        )
    return Prepared(table, target, y, task, columns, count if count >= MIN_HELD_OUT else 0)


def _recognised(columns: Columns, known: AnyNDArray, y: AnyNDArray, task: Task) -> dict[str, Any]:
    """Return what was recognised in a table, to be said."""
    facts: dict[str, Any] = {"rows": len(y), "target": "numbers (regression)"}
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

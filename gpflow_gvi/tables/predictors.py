"""What P may be around, by the names of the command line."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np


def _trees(kind: str, seed: int) -> Any:
    return getattr(importlib.import_module("sklearn.ensemble"), kind)(random_state=seed)


def _ridge(seed: int) -> Any:
    return importlib.import_module("sklearn.linear_model").RidgeCV(np.logspace(-3.0, 3.0, 13))


PREDICTORS: dict[str, Any] = {
    "auto": lambda seed: "auto",
    "none": lambda seed: None,
    "hist_gradient_boosting": functools.partial(_trees, "HistGradientBoostingRegressor"),
    "random_forest": functools.partial(_trees, "RandomForestRegressor"),
    "extra_trees": functools.partial(_trees, "ExtraTreesRegressor"),
    "ridge": _ridge,
}
"""Functions of a seed; scikit-learn is imported when one is called."""

"""Validation of arguments: what is wrong is raised by name before any work is done."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints, InducingVariables

from .errors import NumericsWarning


def positive(name: str, value: Any, *, or_zero: bool = False) -> None:
    """Raise unless every entry of a value known now is finite and positive."""
    known = tf.get_static_value(tf.convert_to_tensor(value))
    if known is None:  # a value of a graph
        return
    array = np.asarray(known, dtype=float)
    low_enough = array < 0.0 if or_zero else array <= 0.0
    if np.any(low_enough) or not np.all(np.isfinite(array)):
        wanted = "zero or positive" if or_zero else "positive"
        raise ValueError(f"{name} is {value}; it must be {wanted} and finite.")


def count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise unless a value is a whole number of at least one, or another least."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}.")


def one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    """Raise unless a value is among those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {list(allowed)}.")


def number_of_data(num_data: Any) -> None:
    """Raise unless `num_data`, the N of the objective, is a count."""
    if num_data is None:
        raise ValueError(
            "num_data is None. The objective is N times an average, so it needs the number of "
            "training points: pass num_data=len(X) of the whole data set, not of a minibatch."
        )
    positive("num_data", num_data)


def distinct_points(inducing_variable: InducingVariables) -> None:
    """Warn of inducing points that occur twice: K_ZZ is singular but for its jitter."""
    for part in getattr(inducing_variable, "inducing_variables", (inducing_variable,)):
        Z = getattr(part, "Z", None)
        if Z is None or type(part) is not InducingPoints:
            continue
        with tf.init_scope():
            points = np.asarray(tf.convert_to_tensor(Z))
        repeated = len(points) - len(np.unique(points, axis=0))
        if repeated:
            warnings.warn(
                f"{repeated} of the {len(points)} inducing points Z repeat another one, so K_ZZ is "
                f"singular; it is factorised with jitter {default_jitter():.3g} added to its "
                "diagonal. Drop the repeated rows (numpy.unique(Z, axis=0)) to avoid this.",
                NumericsWarning,
                stacklevel=4,
            )

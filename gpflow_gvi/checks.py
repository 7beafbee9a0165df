"""The gate: arguments of users are looked at here, once, before any work is done."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.config import default_float, default_jitter
from gpflow.inducing_variables import InducingPoints, InducingVariables

from .errors import NumericsWarning

MANY_COLUMNS = 36
"""Rows of fewer whole numbers are hardly images."""


def positive(name: str, value: Any, *, or_zero: bool = False) -> None:
    """Raise unless every entry of a value known now is finite and positive."""
    if tf.is_symbolic_tensor(value):
        return
    array = np.asarray(tf.convert_to_tensor(value), dtype=float)
    low_enough = array < 0.0 if or_zero else array <= 0.0
    if np.any(low_enough) or not np.all(np.isfinite(array)):
        wanted = "zero or positive" if or_zero else "positive"
        raise ValueError(f"{name} is {value}; it must be {wanted} and finite.")


def count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise unless a value is a whole number of at least one, or another least."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}.")


def number_of_data(num_data: Any) -> None:
    """Raise unless `num_data`, the N of the objective, is a count."""
    if num_data is None:
        raise ValueError(
            "num_data is None. The objective is N times an average, so it needs the number of "
            "training points: pass num_data=len(X) of the whole data set, not of a minibatch."
        )
    positive("num_data", num_data)


def data(X: Any, Y: Any, *, names: tuple[str, str] = ("X", "Y")) -> RegressionData:
    """Return X and Y as tensors after looking for what would spoil a fit."""
    X, Y = inputs(names[0], X), inputs(names[1], Y)
    same_rows(names, X, Y)
    return X, Y


def same_rows(names: tuple[str, str], X: Any, Y: Any) -> None:
    """Raise unless X and Y have the same number of rows."""
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            f"{names[0]} has {X.shape[0]} rows and {names[1]} has {Y.shape[0]}; they must be the "
            "same in number."
        )


def inputs(name: str, value: Any) -> tf.Tensor:
    """Return rows of numbers as a tensor after looking for what would spoil a fit."""
    if tf.is_symbolic_tensor(value):
        return value
    if isinstance(value, tf.Variable | Parameter):
        value = tf.convert_to_tensor(value)
    array = value if isinstance(value, tf.Tensor) else np.asarray(value)
    dtype = tf.as_dtype(array.dtype)
    if dtype != default_float():
        wanted = np.dtype(default_float()).name
        scaled = " / 255 (of pixels)" if dtype == tf.uint8 else ""
        raise TypeError(
            f"{name} has dtype {dtype.name}, but the model computes in {wanted}. Pass "
            f"{name}.astype('{wanted}'){scaled}, or change gpflow.config's default float."
        )
    if len(array.shape) < 2:
        remedy = f"{name}[:, None] makes a column of it"
        raise ValueError(
            f"{name} has shape {tuple(array.shape)}, but rows are data points: it must have rank 2 "
            f"([N, D]); {remedy}."
        )
    if array.shape[0] == 0:
        raise ValueError(f"{name} has shape {tuple(array.shape)}: there are no data points.")
    numbers = np.asarray(array)
    if not np.all(np.isfinite(numbers)):
        finite = np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
        rows = np.flatnonzero(~finite)
        raise ValueError(
            f"{name} has NaN or infinite values in {len(rows)} of {len(numbers)} rows (the first "
            f"is row {rows[0]}). Drop those rows or fill them in before fitting."
        )
    scaled_images(name, numbers)
    return tf.convert_to_tensor(array)


def scaled_images(name: str, X: AnyNDArray) -> None:
    """Warn of images whose pixels are whole numbers up to 255, as in files; rows may be images."""
    if math.prod(X.shape[1:]) < MANY_COLUMNS or not 64 <= np.max(X) <= 255 or np.min(X) < 0:
        return
    if np.all(X[:100] == np.round(X[:100])):
        warnings.warn(
            f"{name} looks like images that were not scaled: {X.shape[1:]} whole numbers in each "
            f"row, the largest {np.max(X):g}. Networks and lengthscales start where inputs are "
            f"about 1 in size: pass {name} / 255.",
            NumericsWarning,
            stacklevel=4,
        )


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

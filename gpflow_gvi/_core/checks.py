"""Validation of arguments: errors name the argument, and are raised before any work is done."""

from __future__ import annotations

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import likelihoods
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.sparse import issparse

from ..errors import short_repr


def array_of_any(name: str, value: Any) -> AnyNDArray:
    """Return an argument as an array of whatever type; raise with the reason if it is none."""
    if type(value) is np.ndarray:  # the most frequent, and predictions of one row are fast
        return value
    if issparse(value):
        raise TypeError(f"{name} is a sparse {type(value).__name__}; pass {name}.toarray().")
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        raise ValueError(
            f"{name} is masked in {np.sum(value.mask)} of {value.size} entries. Drop those rows, "
            f"or fill them in ({name}.filled(...))."
        )
    try:
        return np.asarray(value)
    except Exception as error:  # of whatever library the value is of
        raise _no_array(name, value) from error


def array(name: str, value: Any) -> AnyNDArray:
    """Return an argument as an array of numbers or text; objects that are numbers become floats."""
    found = array_of_any(name, value)
    if found.dtype != object:
        return found
    if found.ndim == 0:
        raise _no_array(name, value)
    for index, entry in np.ndenumerate(found):
        if not isinstance(entry, numbers.Real | np.bool_):
            place = ", ".join(map(str, index))
            raise TypeError(
                f"{name} has dtype object and at [{place}] {short_repr(entry)}, which is not a "
                "number. Leave out or fill in such rows, and give dates and names as numbers."
            )
    try:
        return found.astype(float)
    except OverflowError as error:
        raise ValueError(f"{name} has numbers that are too large for a float.") from error


def _no_array(name: str, value: Any) -> TypeError:
    return TypeError(
        f"{name} is {short_repr(value)}, a {type(value).__name__}, which makes no array of "
        "numbers. Pass a NumPy array, a table or lists of equal length: a row for each data point."
    )


def are_missing(values: AnyNDArray) -> AnyNDArray:
    """Return which values are None, NaN, or what pandas has in their place, of the same shape."""
    if values.dtype.kind != "O":
        return values != values
    found = [v is None or str(v == v) != "True" for v in values.flat]
    return np.array(found, bool).reshape(values.shape)


def complete(name: str, values: AnyNDArray) -> None:
    """Raise if values are missing in some rows."""
    missing = np.flatnonzero(are_missing(values).any(axis=tuple(range(1, values.ndim))))
    if len(missing):
        raise ValueError(
            f"{name} has missing values in {len(missing)} of {len(values)} rows (the first is row "
            f"{missing[0]}). Leave these rows out"
            + (", as learn(..., missing='ignore') does." if name in ("Y", "y") else ".")
        )


def instance(name: str, value: Any, kind: type) -> None:
    """Raise unless a value is an object of a class."""
    if not isinstance(value, kind):
        package = kind.__module__.partition(".")[0]
        raise TypeError(
            f"{name} is {short_repr(value)}; it must be a {kind.__name__} of {package}."
        )


def likelihood(value: Any) -> None:
    """Raise unless an argument is None or a likelihood of GPflow."""
    if isinstance(value, likelihoods.StudentT) and float(value.df) <= 2.0:
        raise ValueError(
            f"likelihood is StudentT with df={float(value.df):g}, under which y has no variance. "
            "Take df above 2."
        )
    if value is None or isinstance(value, Likelihood):
        return
    name = getattr(value, "__name__", str(value).title())
    name = name if hasattr(likelihoods, name) else "Poisson"
    raise TypeError(
        f"likelihood is {short_repr(value)}; it must be an object of a class of likelihoods of "
        f"GPflow. Pass gpflow.likelihoods.{name}(...)."
    )


def positive(name: str, value: Any, *, or_zero: bool = False) -> None:
    """Raise unless every entry of a value known now is finite and positive."""
    known = tf.get_static_value(tf.convert_to_tensor(value))
    if known is None:  # a value of a graph
        return
    array = np.asarray(known)
    array = array.astype(float) if array.dtype.kind in "biuf" else np.array(np.nan)
    low_enough = array < 0.0 if or_zero else array <= 0.0
    if np.any(low_enough) or not np.all(np.isfinite(array)):
        wanted = "zero or positive" if or_zero else "positive"
        raise ValueError(f"{name} is {value}; it must be {wanted} and finite.")


def positive_number(name: str, value: Any, *, or_zero: bool = False) -> None:
    """Raise unless a value is one real number, of Python or a tensor, and `positive`."""
    if not (isinstance(value, numbers.Real) or getattr(value, "shape", None) == ()):
        raise ValueError(f"{name} is {short_repr(value)}; it must be one real number.")
    positive(name, value, or_zero=or_zero)


def count(name: str, value: Any, *, least: int = 1, most: float = np.inf) -> None:
    """Raise unless a value is a whole number of at least one, or another least."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_whole and least <= value <= most):
        at_most = f" and at most {most}" if most < np.inf else ""
        raise ValueError(
            f"{name} is {short_repr(value)}; it must be a whole number of at least {least}"
            f"{at_most}."
        )


def seed(value: Any) -> None:
    """Raise unless a seed is None or a whole number that NumPy and TensorFlow take."""
    if value is not None:
        count("seed", value, least=0, most=2**31 - 1)


def fraction(name: str, value: float) -> None:
    """Raise unless a number is at least 0 and less than 1."""
    if not (_is_number(value) and 0.0 <= value < 1.0):
        shown = short_repr(value)
        raise ValueError(f"{name} is {shown}; it must be a number of at least 0 and less than 1.")


def coverage(value: float, name: str = "coverage") -> None:
    """Raise unless a nominal coverage is a number between 0 and 1."""
    if not (_is_number(value) and 0.0 < value < 1.0):
        shown = short_repr(value)
        raise ValueError(f"{name} is {shown}; it must lie between 0 and 1, as the number 0.95.")


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"


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
    positive_number("num_data", num_data)
    known = tf.get_static_value(tf.convert_to_tensor(num_data))
    if known is not None and known % 1:
        raise ValueError(f"num_data is {num_data}; it must be a whole number, as len(X) is.")

"""Observations that are classes: labels 0, 1, ..., and the likelihoods that take them.

GPflow's likelihoods take labels in a column, `Softmax` as integers and the others as floats, and
validate none of them: a label that is no class counts as no class at all. Here labels of any number
type are taken, as a column or as a vector, and are validated. Labels that are names, or other
numbers, are encoded as their places among the sorted classes.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax, SwitchedLikelihood

from ..errors import NumericsWarning, short_repr
from . import checks


@functools.singledispatch
def num_classes(likelihood: Likelihood | None) -> int | None:
    """Return the number of classes of a likelihood, or None if its observations are none."""
    return None


@num_classes.register
def _(likelihood: Bernoulli) -> int:
    return 2


@num_classes.register(MultiClass)
@num_classes.register(Softmax)
def _(likelihood: Any) -> int:
    return int(likelihood.num_classes or 0)


def are_labels(likelihood: Likelihood | None) -> bool:
    """Return True if the observations of a likelihood are classes."""
    return num_classes(likelihood) is not None


def classes_of(Y: Any, likelihood: Likelihood | None, names: Any = None) -> AnyNDArray | None:
    """Return the classes that labels are of, sorted, or None for numbers that are not labels.

    Strings, booleans and categories are labels under any likelihood; numbers are under one of
    classes.

    :param Y: observations, [N] or [N, 1].
    :param likelihood: p(y | f), if it is known.
    :param names: all classes, in any order, if Y may lack some.
    """
    values, J = _column("Y", Y), num_classes(likelihood)
    if values is None or (J is None and (likelihood is not None or not _are_names(Y, values))):
        return None
    if _are_names(Y, values):
        checks.complete("Y", values)
    found = with_absent(np.unique(values), names)
    _warn_of_numbers(found, len(values))
    if J == 2 and found.dtype.kind == "b":
        return np.array([False, True])
    if J is None or np.all(np.isin(found, np.arange(J))):
        return found if J is None else np.arange(J)
    if _are_names(Y, values) or (len(found) == J and np.all(np.isfinite(found))):
        if len(found) != J:
            raise ValueError(
                f"Y has {len(found)} classes, {found[:10].tolist()}, but the likelihood is for {J}."
                f" Give one for {len(found)} classes."
            )
        return found
    return None  # numbers that are not of these classes, of which validation says more


def labelled_rows(Y: Any) -> AnyNDArray | None:
    """Return the rows whose label is not missing, or None if Y are numbers.

    :param Y: observations, [N] or [N, P].
    """
    if isinstance(Y, np.ma.MaskedArray):
        Y = np.where(Y.mask, np.nan, Y.data.astype(object))
    values: AnyNDArray = np.asarray(Y)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        return None
    rows = np.flatnonzero(~checks.are_missing(values))
    column = _column("Y", values[rows])
    return None if column is None or not _are_names(Y, column) else rows


def with_absent(found: AnyNDArray, names: Any) -> AnyNDArray:
    """Return all named classes, sorted, if those that are found are among them; else the latter."""
    if names is None or not np.all(np.isin(found, names)):
        return found
    return np.unique(names)


def encoded(name: str, Y: Any, classes: AnyNDArray) -> AnyNDArray:
    """Return labels as class indices: [N].

    :param name: what to call the labels in messages.
    :param Y: labels, [N] or [N, 1].
    :param classes: the classes, sorted: [K].
    """
    values = _column(name, Y)
    if values is None:
        raise TypeError(
            f"{name} has shape {np.shape(Y)} and is not a column of labels, as "
            f"{classes[:3].tolist()} are. classes_[{name}.argmax(axis=1)] makes one of a one-hot "
            "code."
        )
    checks.complete(name, values)
    unknown = ~np.isin(values, classes)
    if np.any(unknown):
        raise ValueError(
            f"{name} has labels that are none of the {len(classes)} classes in {np.sum(unknown)} "
            f"of {len(values)} rows (the first is {short_repr(values[unknown][0])}). The classes "
            f"are {classes[:10].tolist()}."
        )
    return np.searchsorted(classes, values)


def likelihood_of(classes: AnyNDArray) -> Likelihood:
    """Return the likelihood of classes by default: `Bernoulli` of two, else `Softmax`."""
    require_two_classes(classes)
    return Bernoulli() if len(classes) == 2 else Softmax(len(classes))


def require_two_classes(classes: AnyNDArray) -> None:
    """Raise if all labels are of one class, of those that there are examples of: [K]."""
    if len(classes) < 2:
        raise ValueError(
            f"Y has examples of class {short_repr(classes.tolist()[0])} alone: there is nothing "
            "to tell apart. Give examples of at least two classes."
        )


@functools.singledispatch
def num_latents(likelihood: Likelihood | None, Y: TensorType) -> int:
    """Return the number J of latent functions of a likelihood, for observations Y."""
    return int(getattr(likelihood, "latent_dim", None) or Y.shape[-1])


@num_latents.register
def _(likelihood: SwitchedLikelihood, Y: TensorType) -> int:
    return int(Y.shape[-1]) - 1  # its last column says which likelihood a row has


def observed(likelihood: Likelihood | None, Y: TensorType) -> tf.Tensor:
    """Return observations in the shape and of the type that the likelihood takes.

    In a graph, where labels come from a Dataset, one that is no class stops the computation.
    """
    J = num_classes(likelihood)
    if J is None:
        return Y
    Y = tf.convert_to_tensor(Y)
    Y = Y[:, None] if Y.shape.rank == 1 else Y
    whole = tf.cast(Y, tf.int64)
    valid = (whole >= 0) & (whole < J) & (tf.cast(whole, Y.dtype) == Y)
    message = f"Y: labels must be whole numbers from 0 to {J - 1}."
    with tf.control_dependencies([tf.debugging.assert_equal(valid, True, message)]):
        return tf.cast(Y, tf.int64 if isinstance(likelihood, Softmax) else default_float())


def required(name: str, Y: Any, likelihood: Likelihood | None) -> AnyNDArray:
    """Return labels as a likelihood takes them, validated; `Bernoulli` takes several columns."""
    labels = validated(name, Y, num_classes(likelihood) or 0)
    if labels.shape[1] != 1 and getattr(likelihood, "latent_dim", None) is not None:
        raise ValueError(
            f"{name} has shape {labels.shape}; labels of {type(likelihood).__name__} must be "
            f"[N] or [N, 1]. {name}.argmax(axis=1) makes them of a one-hot code."
        )
    return labels


def are_one_hot(Y: AnyNDArray) -> bool:
    """Return True if each row is one in one of several columns, and zero in the others."""
    is_code = Y.ndim == 2 and Y.shape[1] > 1 and Y.dtype.kind in "buif"
    return bool(is_code and np.all((Y == 0) | (Y == 1)) and np.all(np.sum(Y, axis=1) == 1))


def responses(likelihood: Likelihood | None, Y: TensorType) -> TensorType:
    """Return labels as values that latent functions could have, [N, J]; numbers as they are.

    Their one-hot code, so that the latent function of the right class is the largest; of two
    classes with one latent function, -1 and 1.
    """
    J = num_classes(likelihood)
    if J is None:
        return Y
    if isinstance(likelihood, Bernoulli):
        return 2.0 * tf.cast(Y, default_float()) - 1.0
    return tf.one_hot(tf.cast(Y, tf.int64)[:, 0], J, dtype=default_float())


def validated(name: str, Y: Any, J: int) -> AnyNDArray:
    """Return labels as a column of whole numbers from 0 to J - 1."""
    Y = checks.array(name, Y)
    Y = Y[:, None] if Y.ndim == 1 else Y
    if Y.ndim != 2 or Y.size == 0:
        raise ValueError(f"{name} has shape {Y.shape}; labels must be [N] or [N, 1], with N ≥ 1.")
    if Y.dtype.kind not in "buif":
        raise TypeError(
            f"{name} has dtype {Y.dtype}; labels must be numbers from 0 to {J - 1}. "
            "numpy.unique(Y, return_inverse=True) numbers names."
        )
    bad = ~np.isin(Y, np.arange(J))
    if np.any(bad):
        raise ValueError(
            f"{name} has labels that are not whole numbers from 0 to {J - 1} in {np.sum(bad)} of "
            f"{Y.size} places (the first is {Y[bad][0]}). There are {J} classes; "
            "numpy.unique(Y, return_inverse=True) numbers others from 0."
        )
    return Y.astype(np.int64)


def _column(name: str, Y: Any) -> AnyNDArray | None:
    """Return labels as a vector of strings, booleans or numbers; None if they are none of these."""
    values = checks.array_of_any(name, Y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or not len(values):
        return None
    if values.dtype.kind == "O":
        types = {type(value) for value in values[~checks.are_missing(values)].tolist()}
        are_text = all(issubclass(each, str) for each in types)
        if not types or not (are_text or all(issubclass(each, bool | np.bool_) for each in types)):
            return None
        checks.complete(name, values)
        if are_text:  # that of a member of an enumeration is not what str() makes of it
            return np.array([str.__str__(value) for value in values])
        return values.astype(bool)
    return values if values.dtype.kind in "USbiuf" else None


def _are_names(Y: Any, values: AnyNDArray) -> bool:
    """Return True if labels are strings, booleans or pandas categories."""
    kind = getattr(Y, "dtypes", getattr(Y, "dtype", ""))
    kind = kind.iloc[0] if hasattr(kind, "iloc") else kind  # of the column of a table
    return values.dtype.kind in "USb" or str(kind) == "category"


def _warn_of_numbers(classes: AnyNDArray, num_rows: int) -> None:
    """Warn of numbers as text, of which most rows have their own."""
    if classes.dtype.kind not in "US" or len(classes) <= max(2, num_rows // 2):
        return
    with contextlib.suppress(ValueError):
        classes.astype(float)
        warnings.warn(
            f"Y are numbers as text, as {classes[0]!r}, which are {len(classes)} classes in "
            f"{num_rows} rows. If they are no labels pass numbers, for example Y.astype(float).",
            NumericsWarning,
            stacklevel=6,
        )

"""Rows that are probably not what the user takes them for: each is told of in one sentence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..._core import labels
from ...errors import NumericsWarning
from ..row_facts import spacing
from .scaling import Scaling

Array = np.ndarray[Any, Any]

MAX_CLASSES = 10
"""More numbers, from zero on, hardly are classes."""


def warn_of_labels(Y: Array) -> None:
    """Warn of what looks like labels, of which none is rare, where nothing says so."""
    values, counts = np.unique(Y, return_counts=True)
    K = len(values)
    are_labels = K == 2 or (2 < K <= MAX_CLASSES and np.min(counts) > 0.5 * len(Y) / K)
    if Y.shape[1] == 1 and are_labels and values.tolist() in ([-1, 1], [1, 2], list(range(K))):
        shown = f"a whole number from 0 to {K - 1}" if K > 2 else f"{values[0]:g} or {values[1]:g}"
        wanted = "Bernoulli()" if K == 2 else f"Softmax({K})"
        message = (
            f"Y is {shown} in every row and is regressed, as real numbers are. If these are "
            f"classes pass likelihood=gpflow.likelihoods.{wanted}, or take GVIClassifier."
        )
    elif labels.are_one_hot(Y):
        message = (
            f"Each row of Y is 1 in one of {Y.shape[1]} columns and 0 in the others, and these are "
            "regressed. If they are a one-hot code pass labels, np.argmax(Y, axis=1), with "
            f"likelihood=gpflow.likelihoods.Softmax({Y.shape[1]})."
        )
    elif np.array_equal(values, [0, 1]):
        message = (
            f"Y is 0 or 1 in each of {Y.shape[1]} columns and is regressed. If these are classes "
            "pass likelihood=gpflow.likelihoods.Bernoulli(); around a network, one at a time."
        )
    else:
        return
    warnings.warn(message, NumericsWarning, stacklevel=5)


def warn_of_atoms(Y: Array) -> None:
    """Warn of a value that most rows have, where the others are on no grid: no density has it."""
    for column in Y.T:
        y = column[~np.isnan(column)]
        values, counts = np.unique(y, return_counts=True)
        most = np.argmax(counts)
        if len(values) > 2 and 2 * counts[most] > len(y) and not np.isfinite(spacing(y)):
            warnings.warn(
                f"Y is {values[most]:.6g} in {counts[most]} of {len(y)} rows, but the laws that "
                "are learned are continuous, and no value has a mass. Learn whether Y is "
                f"{values[most]:.6g} with GVIClassifier, and how large it is from the other rows.",
                NumericsWarning,
                stacklevel=5,
            )


CROWDED = 1e-3
"""Where half of a column lies within this part of its standard deviation, few values make it up."""


def warn_of_lost_columns(X: Array) -> None:
    """Warn of columns whose values are hardly told apart in standard units."""
    rows = X.reshape(len(X), -1)
    units = Scaling.of(rows)
    Z = units.standard(rows).numpy()
    from_median = np.abs(Z - np.median(Z, axis=0))
    half = np.median(from_median, axis=0)
    lost = (units.scale == 1.0) & (np.ptp(rows, axis=0) > 0.0) & (Z.std(axis=0) < 0.5)
    for d in np.flatnonzero((half > 0.0) & (half < CROWDED) & ~lost):
        extreme = rows[np.argmax(from_median[:, d]), d]
        warnings.warn(
            f"Column {d} of X has extreme values ({extreme:.3g}): all others look equal on its "
            f"scale, as half of them lie within {half[d]:.1g} of its standard deviation. Leave "
            "such rows out, or give the column as logarithms or ranks.",
            NumericsWarning,
            stacklevel=5,
        )
    for d in np.flatnonzero(lost):
        warnings.warn(
            f"Column {d} of X has values so close to {rows[0, d]:.6g} that they look equal in "
            f"{X.dtype.name}. Subtract an offset before it is rounded, or give another unit.",
            NumericsWarning,
            stacklevel=5,
        )

"""What is known of the rows before anything is fitted: repeats, folds, the grid of y, gross values.

Rows with equal inputs are one group. A group is left out as a whole: beside its twin a row is
predicted by a kernel that knows nothing but the rows themselves. Rows that are probably not what
the user takes them for are told of.
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray

from .._core import labels
from ..errors import NumericsWarning
from .rows.scaling import Scaling

SIGNIFICANT_DIGITS = 12
"""Rows that agree to as many digits of a column's largest value are equal: what is computed in
another order differs by more than the last digits of float64."""

MAX_SHARE_OF_VALUES = 0.5
"""Values of y are on a grid only if they repeat: at most n times this of n values are distinct."""

GROSS_RATIO = 12.0
"""A value of y is gross if it is as many times further from the median than 99 of 100 values."""

MAX_GROSS = 0.01
"""Not more than this share of the rows can be gross: more of them are a tail."""

MAX_SLIPS = 0.1
"""The same share where those that are left have some that are far from the others, in turn."""

MIN_ROWS_OF_SLIPS = 5
"""The smallest number of rows of which one can be gross: of three, two are often close."""

MIN_ROWS_OF_LEVELS = 5
"""From as many rows on for each combination of levels a new row hardly has another combination."""

MAX_CLASSES = 10
"""More numbers, from zero on, hardly are classes."""

CROWDED = 1e-3
"""Where half of a column lies within this part of its standard deviation, few values make it up."""

MAX_ROWS_OF_TEST = 1000
"""Whether a column names groups of rows is tested with not more rows than these."""


def groups_of(X: AnyNDArray) -> AnyNDArray:
    """Return the group of each row, 0, 1, ..., which rows of equal inputs share: [N]."""
    rows = X.reshape(len(X), -1)
    largest = np.max(np.abs(rows), axis=0, where=np.isfinite(rows), initial=0.0)
    with np.errstate(divide="ignore"):
        exponent = np.where(largest > 0.0, np.floor(np.log10(largest)), 0.0)
    unit = 10.0 ** (exponent - min(SIGNIFICANT_DIGITS, np.finfo(rows.dtype).precision - 2))
    _, group = np.unique(np.round(rows / unit), axis=0, return_inverse=True)
    return np.asarray(group).reshape(-1)


def num_groups(X: AnyNDArray) -> int:
    """Return the number of distinct rows."""
    return int(np.max(groups_of(X))) + 1


def left_out_together(X: AnyNDArray) -> AnyNDArray:
    """Return the group of each row that is left out as a whole: [N].

    Where inputs repeat as categories do, more often than there are of them or often and at levels
    in each column, each row is one of its own: new rows have known inputs then, and these hardly
    are copies.
    """
    N, groups = len(X), groups_of(X)
    G = int(np.max(groups)) + 1
    are_known = G**2 < N or (N >= MIN_ROWS_OF_LEVELS * G and _are_levels(X))
    return np.arange(N) if are_known else groups


def _are_levels(X: AnyNDArray) -> bool:
    columns = [np.unique(x) for x in X.reshape(len(X), -1).T]
    return all(len(values) == 1 or np.isfinite(_step(values)) for values in columns)


def folds_of(groups: AnyNDArray, num_folds: int, seed: int) -> AnyNDArray:
    """Return the fold of each row, 0, ..., K - 1, at random; a group is in one fold: [N]."""
    num_groups = int(np.max(groups)) + 1
    if num_groups < num_folds:
        raise ValueError(
            f"X has {num_groups} rows, but they are parted into {num_folds} folds. Give more rows, "
            "or predictor=None."
        )
    fold = np.random.default_rng(seed).permutation(np.arange(num_groups) % num_folds)
    return np.asarray(fold[groups])


def repeats(X: AnyNDArray, Y: AnyNDArray) -> tuple[int, AnyNDArray]:
    """Return the number of rows with the inputs of an earlier row, and the rows without copies.

    A copy has the inputs and the observations of an earlier row. It is no further observation
    where nothing else makes these agree: if rows of equal inputs never differ in y, noise, if there
    is any, is repeated with them; else values of y agree by chance where they are multiples of
    something, and one that rows of other inputs have, too, as zero or a limit, may do so. One in m
    of the rows that agree by chance counts if all others are there m times, as in a table that is.
    """
    groups = groups_of(X)
    num_repeated = len(groups) - (int(np.max(groups)) + 1)
    every = np.arange(len(X))
    if not num_repeated:
        return 0, every
    pairs = groups_of(np.column_stack([groups, Y]))
    _, first, count = np.unique(pairs, return_index=True, return_counts=True)
    if len(first) == int(np.max(groups)) + 1:
        return num_repeated, np.sort(first)
    if all(np.isfinite(_step(np.unique(y[np.isfinite(y)]))) for y in Y.T):
        return num_repeated, every
    values = groups_of(Y)[first]
    is_alone = np.bincount(values)[values] == 1
    m = np.gcd.reduce(count[is_alone]) or 1
    counts = np.where(is_alone, 1, -(-count // m))
    order = np.argsort(pairs, kind="stable")
    place = every - np.repeat(np.cumsum(count) - count, count)
    return num_repeated, np.sort(order[place < np.repeat(counts, count)])


def grouping_column(X: AnyNDArray, Y: AnyNDArray, level: float, max_gap: float) -> int | None:
    """Return the column whose values name groups of rows: no smooth function of it fits them.

    The mean of the rows with a value is compared with what lies between the means of the values
    next to it. Such pseudo-residuals (Gasser, Sroka and Jennen-Steinmetz 1986), relative to their
    variances, and what rows with the same value differ by estimate the same variance if Y depends
    smoothly on the column, and their ratio has about Fisher's distribution. A linear function is
    taken from Y before, and rows of equal inputs count once.

    :param X: standardised inputs, [N, D].
    :param Y: standardised outputs, [N, J].
    :param level: the chance of a false alarm by any of the columns.
    :param max_gap: the largest distance of values next to each other.
    """
    _, first = np.unique(groups_of(X[:MAX_ROWS_OF_TEST]), return_index=True)
    X, Y = X[first], Y[first]
    basis = np.column_stack([np.ones(len(X)), X])
    residual = Y - basis @ np.linalg.lstsq(basis, Y, rcond=1e-6)[0]
    chances = [_log_chance(x, residual) if gap_of_values(x) < max_gap else 0.0 for x in X.T]
    least = int(np.argmin(chances))
    return least if chances[least] < np.log(level / len(chances)) else None


def gap_of_values(x: AnyNDArray) -> float:
    """Return the median distance of the values of a column next to each other."""
    values = np.unique(x)
    return float(np.median(np.diff(values))) if len(values) > 1 else np.inf


def _log_chance(x: AnyNDArray, Y: AnyNDArray) -> float:
    """Return the log of the chance that groups deviate as much from a smooth function of x.

    It is zero where there are too few values, or too few rows for each, to tell.

    :param x: a column, whose values are the groups, [N].
    :param Y: what a linear function leaves, [N, J].
    """
    values, group, sizes = np.unique(x, return_inverse=True, return_counts=True)
    G, freedom = len(values), len(x) - len(values)
    if G < 3 or freedom < 1:
        return 0.0
    means = np.stack([np.bincount(group, y) for y in Y.T], axis=1) / sizes[:, None]  # [G, J]
    of_rows = np.sum(np.square(Y - means[group]), axis=0) / freedom
    before = (values[2:] - values[1:-1]) / (values[2:] - values[:-2])
    after = 1.0 - before
    deviation = means[1:-1] - before[:, None] * means[:-2] - after[:, None] * means[2:]
    relative = 1.0 / sizes[1:-1] + before**2 / sizes[:-2] + after**2 / sizes[2:]
    of_groups = np.mean(np.square(deviation) / relative[:, None], axis=0)
    ratio = np.mean(of_groups / np.maximum(of_rows, 1e-12))
    return float(scipy.stats.f.logsf(ratio, G - 2, freedom))


def spacing(y: AnyNDArray) -> float:
    """Return δ, if the values of y are multiples of it and repeat; ∞ if y has no such grid.

    Rounded values say of y that it is within δ/2: the variance of what was rounded away is δ²/12.

    :param y: observations, [N].
    """
    values = np.unique(y)
    return _step(values) if len(values) <= MAX_SHARE_OF_VALUES * len(y) else np.inf


def _step(values: AnyNDArray) -> float:
    """Return δ, if ascending values are multiples of it from each other; else ∞."""
    if len(values) < 2:
        return np.inf
    steps = np.diff(values)
    step = float(np.min(steps))
    multiples = steps / step
    # Values such as 0.1 and 0.3 are multiples up to their rounding.
    error = 1e3 * np.finfo(values.dtype).eps * np.max(np.abs(values)) / step
    are_multiples = np.abs(multiples - np.round(multiples)) <= max(error, 1e-6)
    # Among many values some are so close that rounding hides everything.
    return step if error < 0.1 and np.all(are_multiples) else np.inf


def gross_rows(Y: AnyNDArray) -> AnyNDArray:
    """Return the rows with a value of y that is far from all others, as a slip of the pen is: [n].

    On the scale of one of them all others look equal: it alone would decide on units, noise and
    kernels. Without them the others have a scale in common. Where more and more of these would be
    far from those left, as under exponential growth, or there are few, no row is.

    :param Y: observations, [N, J].
    """
    kept = np.arange(len(Y))
    least = len(Y) - max(1, int(MAX_SLIPS * len(Y)))
    while len(Y) >= MIN_ROWS_OF_SLIPS and len(far := _far_from_others(Y[kept])):
        kept = np.delete(kept, far)
        if len(kept) < least:
            return np.array([], int)
    return np.setdiff1d(np.arange(len(Y)), kept)


def _far_from_others(Y: AnyNDArray) -> AnyNDArray:
    deviation = np.abs(Y - np.median(Y, axis=0))
    far = GROSS_RATIO * np.quantile(deviation, 1.0 - MAX_GROSS, axis=0, method="lower")
    return np.flatnonzero(np.any((deviation > far) & (far > 0.0), axis=1))


def warn_of_labels(Y: AnyNDArray) -> None:
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


def warn_of_atoms(Y: AnyNDArray) -> None:
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


def warn_of_lost_columns(X: AnyNDArray) -> None:
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

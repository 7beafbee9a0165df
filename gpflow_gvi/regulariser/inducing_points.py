"""The choice of inducing points Z: by greedy variance, by k-means or at random.

The three functions have one signature, so that each can stand where another does. They use X
and never Y; equal rows of X count once.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from .._core import checks, images
from .._core.data import finite_rows, warn_of_unscaled_images
from .._core.notices import logger
from ..errors import short_repr
from .pivots import greedy_rows, without_network

MAX_ROWS_OF_KMEANS = 10_000
"""The number of rows above which k-means takes minibatches of them."""

NO_MORE_ROWS = "X has no more distinct rows"


class Selection(NamedTuple):
    """Inducing points, and the rows of the data that they are."""

    points: AnyNDArray
    """The points Z: [M, D...]."""
    indices: AnyNDArray | None
    """The indices of the points in X: [M]; None if they are not rows of X."""


class Select(Protocol):
    """A way of choosing inducing points: `greedy_variance`, `kmeans`, `uniform` or your own."""

    def __call__(self, X: Any, num_points: int, *, kernel: Kernel, seed: int = 0) -> Selection:
        """Choose at most `num_points` inducing points for the data X: [N, D...]."""


@check_shapes("X: [N, D...]", "return.points: [M, D...]", "return.indices: [M]")
def greedy_variance(
    X: Any, num_points: int, *, kernel: Kernel, seed: int = 0, tolerance: float = 1e-12
) -> Selection:
    """Choose row after row of X, each where the rows chosen so far leave most variance.

    The next point is the x that maximises k(x, x) - k(x, Z) k(Z, Z)⁻¹ k(Z, x): the next pivot of a
    partial Cholesky factorisation of k(X, X) (Fine and Scheinberg 2001; Burt, Rasmussen and van
    der Wilk 2020). It takes O(N M²) time and O(N M) memory. The variances of several outputs are
    added up, each conditioned on its own output alone.

    The first m of M points are the m points that would be chosen alone, and no two are equal. If X
    has fewer distinct rows, or the variance is used up before, fewer are returned, with a warning.

    :param X: the data, with rows of any shape that the kernel takes.
    :param kernel: the kernel, of one or more outputs.
    :param seed: decides which of several rows of exactly the same variance comes first.
    :param tolerance: the part of the variance Σ_n k(x_n, x_n) that may be left at the end.
    """
    data, num_points = _arguments(X, num_points)
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel is {short_repr(kernel)}; it must be a gpflow.kernels.Kernel.")
    checks.fraction("tolerance", tolerance)
    order = _distinct_rows(data, seed)
    kernel_of_rows, rows = without_network(kernel, tf.constant(data[order]))
    if rows.shape.rank > 2:
        rows = images.data_rows(rows, kernel_of_rows)
    pivots, remaining = greedy_rows(kernel_of_rows, rows.numpy(), num_points, tolerance)
    if not np.isfinite(remaining):
        raise ValueError(
            f"kernel {type(kernel).__name__} has NaN or infinite values on X. Check the values "
            "of its parameters, and standardise X if its entries are very large."
        )
    if not len(pivots):
        raise ValueError(
            f"kernel {type(kernel).__name__} has variance 0 at every row of X, so that no point "
            "can be chosen. Check the values of its parameters."
        )
    indices = order[pivots]
    reason = NO_MORE_ROWS
    if len(indices) < len(order):
        reason = f"no more than tolerance={tolerance:g} of the variance is left, or than rounding"
    _notify_if_fewer(len(indices), num_points, reason)
    return Selection(data[indices], indices)


@check_shapes("X: [N, D...]", "return.points: [M, D...]", "return.indices: [M]")
def kmeans(X: Any, num_points: int, *, kernel: Kernel | None = None, seed: int = 0) -> Selection:
    """Choose the centres of k-means clusters of the rows of X, started by k-means++.

    The clustering is scikit-learn's, by minibatches beyond `MAX_ROWS_OF_KMEANS` rows. If X has no
    more distinct rows than points are asked for, these are the points, with a warning if they are
    fewer.

    :param X: the data, with rows of any shape; the distance is the Euclidean one between them.
    :param kernel: taken to share a signature with `greedy_variance`; k-means needs none.
    :param seed: the seed of the starting points, and of the samples.
    """
    data, num_points = _arguments(X, num_points)
    points = data[_distinct_rows(data, seed)]
    if num_points < len(points):
        from sklearn.cluster import KMeans, MiniBatchKMeans  # it takes long to import

        method = MiniBatchKMeans if len(points) > MAX_ROWS_OF_KMEANS else KMeans
        clustering = method(num_points, init="k-means++", n_init=1, random_state=seed)
        centres = clustering.fit(points.reshape(len(points), -1)).cluster_centers_
        points = centres.astype(data.dtype).reshape(-1, *data.shape[1:])
        points = points[_distinct_rows(points, seed)]
    _notify_if_fewer(len(points), num_points, "the others would repeat one of them")
    return Selection(points, None)


@check_shapes("X: [N, D...]", "return.points: [M, D...]", "return.indices: [M]")
def uniform(X: Any, num_points: int, *, kernel: Kernel | None = None, seed: int = 0) -> Selection:
    """Choose rows of X at random, without replacement, passing over repeated rows.

    :param X: the data, with rows of any shape.
    :param kernel: taken to share a signature with `greedy_variance`; chance needs none.
    :param seed: the seed of the random choice.
    """
    data, num_points = _arguments(X, num_points)
    indices = _distinct_rows(data, seed)[:num_points]
    _notify_if_fewer(len(indices), num_points, NO_MORE_ROWS)
    return Selection(data[indices], indices)


def _arguments(X: Any, num_points: int) -> tuple[AnyNDArray, int]:
    checks.count("num_points", num_points)
    rows = np.asarray(finite_rows("X", X))
    warn_of_unscaled_images("X", rows)
    return rows, int(num_points)


def _distinct_rows(X: AnyNDArray, seed: int) -> AnyNDArray:
    """Return the indices of distinct rows of X, in random order."""
    order = np.random.default_rng(seed).permutation(len(X))
    rows = np.ascontiguousarray(X[order].reshape(len(X), -1) + 0.0)  # -0.0 and 0.0 are the same
    # As single items rows are sorted far faster than column by column.
    items = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    return order[np.sort(np.unique(items, return_index=True)[1])]


def _notify_if_fewer(found: int, wanted: int, reason: str) -> None:
    if found < wanted:
        text = "%d inducing points were chosen, not num_points=%d: %s."
        logger.info(text, found, wanted, reason)

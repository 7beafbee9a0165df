"""The choice of inducing points Z: by greedy variance, by k-means or at random.

The three functions have one signature, so that each can stand where another does. They look at X
and never at Y; equal rows of X count once.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, SharedIndependent

from . import checks, inputs, outputs
from .evaluation import logger
from .kernels.feature_map import FeatureMap
from .linalg import epsilon

MAXIMAL_BLOCK = 64
"""At most this many points are chosen between two passes over the data; it bounds the memory."""

MOST_IMAGES = 1_000
"""A network looks at so many rows at a time; its layers hold far more numbers than its input."""

MANY_ROWS = 10_000
"""With more rows than this, k-means looks at samples of them."""


class Selection(NamedTuple):
    """Inducing points, and the rows of the data that they are."""

    points: AnyNDArray
    """The points Z: [M, D...]."""
    indices: AnyNDArray | None
    """Where the points stand in X: [M]; None if they are not rows of X."""


class Select(Protocol):
    """A way of choosing inducing points: `greedy_variance`, `kmeans`, `uniform` or your own."""

    def __call__(self, X: Any, num_points: int, *, kernel: Kernel, seed: int = 0) -> Selection:
        """Choose at most `num_points` inducing points for the data X: [N, D...]."""


@check_shapes(
    "X: [N, D...]",
    "return.points: [M, D...]",
    "return.indices: [M]",
)
def greedy_variance(
    X: Any, num_points: int, *, kernel: Kernel, seed: int = 0, tolerance: float = 1e-8
) -> Selection:
    """Choose row after row of X, each where the rows chosen so far leave most variance.

    The next point is the x that maximises k(x, x) - k(x, Z) k(Z, Z)⁻¹ k(Z, x): the next pivot of a
    partial Cholesky factorisation of k(X, X) (Fine and Scheinberg 2001; Burt, Rasmussen and van
    der Wilk 2020). It takes O(N M²) time and O(N M) memory. The variances of several outputs are
    added up, each conditioned on its own output alone.

    The first m of M points are the m points that would be chosen alone, and no two are equal. If X
    has fewer distinct rows, or the variance is used up before, fewer are returned, with a warning.

    :param X: the data, with rows of any shape that the kernel takes.
    :param kernel: the kernel, of one or more outputs. The compiled graph is kept as long as it is,
        and follows the values of its parameters.
    :param seed: decides which of several rows of exactly the same variance comes first.
    :param tolerance: the part of the variance Σ_n k(x_n, x_n) that may be left at the end.
    """
    data, num_points = _arguments(X, num_points)
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel is {kernel!r}; it must be a gpflow.kernels.Kernel.")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance is {tolerance}; it must be at least 0 and less than 1.")
    order = _distinct_rows(data, seed)
    pivots, remaining = _compiled_pivots(
        *_without_network(kernel, data[order]),
        tf.constant(num_points),
        tf.constant(tolerance, data.dtype),
    )
    if not np.isfinite(remaining):
        raise ValueError(
            f"kernel {type(kernel).__name__} has NaN or infinite values on X. Look at the values "
            "of its parameters, and standardise X if its entries are very large."
        )
    if not len(pivots):
        raise ValueError(
            f"kernel {type(kernel).__name__} has variance 0 at every row of X, so that no point "
            "tells anything. Look at the values of its parameters."
        )
    indices = order[pivots.numpy()]
    spent = f"no more than tolerance={tolerance:g} of the variance is left, or than rounding"
    all_taken = len(indices) == len(order)
    _tell_if_fewer(len(indices), num_points, "X has no more distinct rows" if all_taken else spent)
    return Selection(data[indices], indices)


@check_shapes(
    "X: [N, D...]",
    "return.points: [M, D...]",
    "return.indices: [M]",
)
def kmeans(X: Any, num_points: int, *, kernel: Kernel | None = None, seed: int = 0) -> Selection:
    """Choose the centres of k-means clusters of the rows of X, started by k-means++.

    The clustering is scikit-learn's if that is installed, else SciPy's. Of more than `MANY_ROWS`
    rows the former looks at minibatches, the latter at a sample. If X has no more distinct rows
    than points are asked for, these are the points, with a warning if they are fewer.

    :param X: the data, with rows of any shape; the distance is the Euclidean one between them.
    :param kernel: taken to share a signature with `greedy_variance`; k-means needs none.
    :param seed: of the starting points, and of the samples.
    """
    data, num_points = _arguments(X, num_points)
    points = data[_distinct_rows(data, seed)]
    if num_points < len(points):
        centres = _centres(points.reshape(len(points), -1), num_points, seed)
        points = centres.astype(data.dtype).reshape(-1, *data.shape[1:])
        points = points[_distinct_rows(points, seed)]
    _tell_if_fewer(len(points), num_points, "the others would repeat one of them")
    return Selection(points, None)


@check_shapes(
    "X: [N, D...]",
    "return.points: [M, D...]",
    "return.indices: [M]",
)
def uniform(X: Any, num_points: int, *, kernel: Kernel | None = None, seed: int = 0) -> Selection:
    """Choose rows of X at random, without replacement, passing over repeated rows.

    :param X: the data, with rows of any shape.
    :param kernel: taken to share a signature with `greedy_variance`; chance needs none.
    :param seed: of the random choice.
    """
    data, num_points = _arguments(X, num_points)
    indices = _distinct_rows(data, seed)[:num_points]
    _tell_if_fewer(len(indices), num_points, "X has no more distinct rows")
    return Selection(data[indices], indices)


def _arguments(X: Any, num_points: int) -> tuple[AnyNDArray, int]:
    checks.count("num_points", num_points)
    return np.asarray(checks.inputs("X", X)), int(num_points)


def _distinct_rows(X: AnyNDArray, seed: int) -> AnyNDArray:
    """Return where the rows of X stand that differ from all others, in random order."""
    order = np.random.default_rng(seed).permutation(len(X))
    rows = np.ascontiguousarray(X[order].reshape(len(X), -1) + 0.0)  # -0.0 and 0.0 are the same
    # As single items of so many bytes rows are sorted far faster than column by column.
    items = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    return order[np.sort(np.unique(items, return_index=True)[1])]


def _tell_if_fewer(found: int, wanted: int, reason: str) -> None:
    if found < wanted:
        text = "%d inducing points were chosen, not num_points=%d: %s."
        logger.info(text, found, wanted, reason)


def _centres(X: AnyNDArray, M: int, seed: int) -> AnyNDArray:
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
    except ImportError:
        return _scipy_centres(X, M, np.random.default_rng(seed))
    method = MiniBatchKMeans if len(X) > MANY_ROWS else KMeans
    clustering = method(M, init="k-means++", n_init=1, random_state=seed).fit(X)
    return np.asarray(clustering.cluster_centers_)


def _scipy_centres(X: AnyNDArray, M: int, random: np.random.Generator) -> AnyNDArray:
    from scipy.cluster.vq import kmeans2

    if len(X) > MANY_ROWS:
        X = random.choice(X, max(MANY_ROWS, M), replace=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")  # it keeps its old centre
        centres, _ = kmeans2(X, M, iter=50, minit="++", seed=random)
    return centres


def _without_network(kernel: Kernel, X: AnyNDArray) -> tuple[Kernel, tf.Tensor]:
    """Return a kernel of the same pivots, and what it takes: the network runs once, in parts."""
    if isinstance(kernel, SharedIndependent):  # the sum of equal variances is largest where one is
        return _without_network(kernel.kernel, X)
    if not isinstance(kernel, FeatureMap):
        return kernel, inputs.data_rows(tf.constant(X), kernel)
    starts = range(0, len(X), MOST_IMAGES)
    features = [kernel.features(inputs.as_rows(X[i : i + MOST_IMAGES], kernel)) for i in starts]
    return _without_network(kernel.base_kernel, np.concatenate(features))


def greedy_pivots(kernel: Kernel, X: tf.Tensor, num_points: int, tolerance: float) -> tf.Tensor:
    """Return the rows of X that `greedy_variance` would choose, as a part of any graph: [M].

    They are constants to a gradient. Of equal rows the first is chosen.
    """
    while isinstance(kernel, SharedIndependent | FeatureMap):
        if isinstance(kernel, FeatureMap):  # the network runs once
            X = kernel.features(X)
            kernel = kernel.base_kernel
        else:
            kernel = kernel.kernel
    X = tf.stop_gradient(X)
    pivots, _ = _pivots(kernel, X, tf.constant(num_points), tf.constant(tolerance, X.dtype))
    return pivots


class _Graph(NamedTuple):
    """A compiled selection and the variables that it reads."""

    variables: list[Any]
    pivots: Callable[..., Any]


_graphs: weakref.WeakKeyDictionary[Kernel, _Graph] = weakref.WeakKeyDictionary()


def _compiled_pivots(kernel: Kernel, *args: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Run `_pivots` as a graph, traced once for each kernel and again if it has new variables."""
    variables = [variable.ref() for variable in kernel.variables]
    graph = _graphs.get(kernel)
    if graph is None or graph.variables != variables:
        graph = _Graph(
            variables,
            tf.function(functools.partial(_pivots), reduce_retracing=True, autograph=False),
        )
        _graphs[kernel] = graph
    return graph.pivots(kernel, *args)


class _Factor(NamedTuple):
    """A partial pivoted Cholesky factorisation, k_j(X, X) ≈ L_jᵀ L_j for each output j."""

    pivots: tf.Tensor  # [m]
    L: tf.Tensor  # [J, m, N]
    variance: tf.Tensor  # [N, J], what is left of it


def _pivots(
    kernel: Kernel, X: tf.Tensor, M: tf.Tensor, tolerance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return at most M pivots of k(X, X), and how much variance they leave in all."""
    variance = outputs.variance(kernel, X)  # [N, J]
    rounding = 100.0 * epsilon(X.dtype) * variance
    enough = tolerance * tf.reduce_sum(variance)
    N, J = tf.unstack(tf.shape(variance), num=2)

    def unfinished(factor: _Factor) -> tf.Tensor:
        return (tf.size(factor.pivots) < M) & (tf.reduce_sum(factor.variance) > enough)

    def extend(factor: _Factor) -> list[_Factor]:
        at_most = tf.minimum(M - tf.size(factor.pivots), MAXIMAL_BLOCK)
        return [_extended(factor, kernel, X, rounding, enough, at_most)]

    [factor] = tf.while_loop(
        unfinished,
        extend,
        [_Factor(tf.zeros([0], tf.int32), tf.zeros([J, 0, N], X.dtype), variance)],
        shape_invariants=[_Factor(*(tf.TensorShape(rank * [None]) for rank in (1, 3, 2)))],
    )
    return factor.pivots, tf.reduce_sum(factor.variance)


def _extended(
    factor: _Factor,
    kernel: Kernel,
    X: tf.Tensor,
    rounding: tf.Tensor,
    enough: tf.Tensor,
    at_most: tf.Tensor,
) -> _Factor:
    """Return the factorisation with one to `at_most` pivots more.

    Variances only decrease as pivots are added. So among the √N candidates of largest variance one
    can go on choosing, looking at no other row, until the best of them falls below what the least
    of them had at first: nobody else ever had more. Only then is L computed at all rows, for the
    new pivots together and by matrix products. The choice is the greedy one exactly (the lazy
    evaluation of Minoux 1978), and L is read once for many pivots instead of once for each.
    """
    pivots, L, variance = factor
    # The covariance of √N candidates is as large as one row of k(X, X).
    C = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(tf.shape(X)[0], tf.float64))), tf.int32)
    largest, candidates = tf.math.top_k(tf.reduce_sum(variance, axis=1), C)
    L_C = tf.gather(L, candidates, axis=2)  # [J, m, C]
    S = outputs.covariance(kernel, tf.gather(X, candidates))
    # With its diagonal taken from what is known, the first candidate is sure to be chosen.
    S = tf.linalg.set_diag(
        S - tf.matmul(L_C, L_C, transpose_a=True), tf.transpose(tf.gather(variance, candidates))
    )  # [J, C, C]
    picks, L_picks = _dense_pivots(
        S,
        tf.transpose(tf.gather(rounding, candidates)),
        at_most=at_most,
        at_least=largest[-1],
    )
    new = tf.gather(candidates, picks)  # [B]
    rows = _new_rows(kernel, X, new, L, L_picks)  # [J, B, N]
    squares = rows**2

    explained = tf.cumsum(tf.reduce_sum(squares, axis=[0, 2]), exclusive=True)  # [B]
    needed = tf.reduce_sum(variance) - explained > enough
    variance -= tf.transpose(tf.reduce_sum(squares, axis=1))
    # NaN is not below anything: it stays, to be told of at the end.
    variance = tf.where(variance <= rounding, tf.zeros_like(variance), variance)
    nothing = tf.zeros_like(tf.gather(variance, new))
    variance = tf.tensor_scatter_nd_update(variance, new[:, None], nothing)
    return _Factor(
        tf.concat([pivots, tf.boolean_mask(new, needed)], 0),
        tf.concat([L, rows], 1),
        variance,
    )


def _new_rows(
    kernel: Kernel, X: tf.Tensor, new: tf.Tensor, L: tf.Tensor, L_new: tf.Tensor
) -> tf.Tensor:
    """Return the rows of L that belong to new pivots, given them at the pivots: [J, B, N]."""
    rest = outputs.covariance(kernel, tf.gather(X, new), X)
    rest -= tf.matmul(tf.gather(L, new, axis=-1), L, transpose_a=True)
    # An output of which nothing is left at a pivot that the others chose has zeros in L_new there:
    # it leaves the other rows as they are, and what it is divided by does not matter.
    diagonal = tf.linalg.diag_part(L_new)  # [J, B]
    L_new = tf.linalg.set_diag(L_new, tf.where(diagonal > 0.0, diagonal, tf.ones_like(diagonal)))
    return tf.linalg.triangular_solve(L_new, rest, lower=False, adjoint=True)


def _dense_pivots(
    S: tf.Tensor, rounding: tf.Tensor, *, at_most: tf.Tensor, at_least: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the pivots of S [J, C, C] that are no smaller than `at_least`, and L at the pivots."""

    def remaining(S: tf.Tensor) -> tf.Tensor:
        variance = tf.linalg.diag_part(S)
        return tf.where(variance > rounding, variance, tf.zeros_like(variance))  # [J, C]

    def unfinished(i: tf.Tensor, S: tf.Tensor, variance: tf.Tensor, *_: Any) -> tf.Tensor:
        largest = tf.reduce_max(tf.reduce_sum(variance, axis=0))
        return (i < at_most) & (largest > 0.0) & (largest >= at_least)

    def step(
        i: tf.Tensor,
        S: tf.Tensor,
        variance: tf.Tensor,
        pivots: tf.TensorArray,
        rows: tf.TensorArray,
    ) -> tuple[Any, ...]:
        p = tf.argmax(tf.reduce_sum(variance, axis=0), output_type=tf.int32)
        row = tf.math.divide_no_nan(S[:, p], tf.sqrt(variance[:, p])[:, None])  # [J, C]
        S -= row[:, :, None] * row[:, None, :]
        return i + 1, S, remaining(S), pivots.write(i, p), rows.write(i, row)

    _, _, _, pivots, rows = tf.while_loop(
        unfinished,
        step,
        (
            0,
            S,
            remaining(S),
            tf.TensorArray(tf.int32, size=0, dynamic_size=True),
            tf.TensorArray(S.dtype, size=0, dynamic_size=True),
        ),
    )
    picks = pivots.stack()  # [B]
    L = tf.transpose(rows.stack(), [1, 0, 2])  # [J, B, C]
    return picks, tf.gather(L, picks, axis=-1)

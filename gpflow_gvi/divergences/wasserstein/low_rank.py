"""The distance between two covariances, in the span of a low rank and by diagonals outside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.config import default_jitter
from gpflow.kernels import Kernel

from ... import checks, inducing, linalg, outputs, projection, weight_space
from ...covariances.base import SparseCovariance
from ...covariances.svgp import OnRegulariser, SVGPCovariance
from ...evaluation import notice
from ...gaussian_process import GaussianVector
from .base import CovarianceDistance, spread_rows, variances

PIVOTS = 64
"""So many points are taken where nothing else is asked for."""

CANDIDATES = 16
"""Pivots are looked for among at most so many rows each."""

SAMPLED = 300
"""What the low rank leaves is looked at between so many rows and as many others."""

SAMPLED_OF_CONSTANTS = 500
"""So many where nothing of it is trained."""

MOST_LEFT_OVER = 0.1
"""The user is told if a larger part of the variances than this is outside the low rank."""


class _Rows(NamedTuple):
    """Some of the B rows."""

    X: tf.Tensor  # X_T, [t, D...]
    factor: tf.Tensor  # Φ_T, [J, m, t]
    basis: tf.Tensor  # U_Tᵀ, [J, m, t]


class _Span(NamedTuple):
    """The span of Φ's rows, of which U = ΦᵀL⁻ᵀ is an orthonormal basis, and samples T and T'."""

    L: tf.Tensor  # [J, m, m], Φ Φᵀ = L Lᵀ
    some: _Rows
    others: _Rows  # none of the former, or all of them where a batch is small
    same: tf.Tensor  # one if they are all of them, otherwise zero
    single: tf.Tensor  # rows that each of T stands for
    pair: tf.Tensor  # pairs of two rows that each of T × T' stands for


class _Rest(NamedTuple):
    """What a Nyström approximation leaves of a covariance, such as C."""

    inside: tf.Tensor  # Uᵀ C U, [J, m, m]
    diagonal: tf.Tensor  # of C at T, [J, t]


class _Parts(NamedTuple):
    """A covariance S = ΨᵀΨ + E in the span and outside it."""

    low_rank: tf.Tensor  # Uᵀ ΨᵀΨ U, [J, m, m]
    inside: tf.Tensor  # Uᵀ S U, [J, m, m]
    outside: tf.Tensor  # tr S - tr Uᵀ S U, [J]
    rest: tf.Tensor  # the diagonal of E at T, [J, t]


class LowRank(CovarianceDistance):
    """F in the span of a few functions, and by diagonals outside it: O(B m²), linear in B.

    Nyström's approximation at m points gives K = ΦᵀΦ + C and R = ΨᵀΨ + E. Let the columns of U be
    orthonormal and span the rows of Φ. Inside that span and outside it,

        F ≈ F(Uᵀ K U, Uᵀ R U) + (tr K - tr Uᵀ K U)^½ (tr R - tr Uᵀ R U)^½ cos(√d, √e),

    where d and e are the diagonals of C and E. To leave out what correlates inside and outside
    raises a fidelity (no quantum channel lowers it: Nielsen and Chuang 2010, section 9.2), so the
    estimate tends to be below W₂². Of C and E at most 300 columns of 300 rows stand for all, or 500
    of 500 if they are the same, as for an inducing distribution; the rest is exact.

    The points are rows of the batch, the pivots of a Cholesky factorisation of K, each where most
    variance is left. If Q is an SVGP covariance on P's kernel they are its inducing points, where
    Φ is known and r = k - ΦᵀΦ + ... is already of this form.

    The error goes with what the low rank leaves: it is small for smooth kernels, and zero, up to
    jitter, where the rank of both kernels is not larger than m, as with m linear features.
    `error_bound` bounds it, and an outside of over a tenth of the variance is told of.

    :param rank: m, of pivots; fewer where fewer leave no more than `tolerance`. If not given, the
        inducing points where they serve, and elsewhere 64 pivots, or as many as k has features.
    :param tolerance: the part of tr K that pivots may leave.
    """

    name = "low_rank"

    def __init__(self, rank: int | None = None, *, tolerance: float = 1e-6) -> None:
        if rank is not None:
            checks.count("rank", rank)
        if not 0.0 <= tolerance < 1.0:
            raise ValueError(f"tolerance is {tolerance}; it must be at least 0 and less than 1.")
        self.rank = rank
        self.tolerance = tolerance

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        K, R = self._parts(q, p)
        total = tf.reduce_sum(variances(p) + variances(q), axis=-1)
        left = tf.reduce_max((K.outside + R.outside) / total)
        notice(
            "low_rank: the part {} of the variance is outside the low rank, where only the "
            "diagonals of the covariances are compared. LowRank(rank=...) takes a higher rank; "
            "error_bound bounds the error.",
            tf.where(left > MOST_LEFT_OVER, left, tf.zeros_like(left)),
        )
        norms = tf.reduce_sum(K.rest, axis=-1) * tf.reduce_sum(R.rest, axis=-1)
        cosine = tf.reduce_sum(tf.sqrt(K.rest * R.rest), axis=-1) / tf.sqrt(norms)
        fidelity = linalg.fidelity(K.inside, R.inside)
        fidelity += cosine * tf.sqrt(K.outside * R.outside)
        return linalg.not_negative(total - 2.0 * fidelity)

    def error_bound(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return 2 F(Uᵀ K U, Uᵀ R U) + 2 (tr K - ...)^½ (tr R - ...)^½ - 2 F(Φᵀ Φ, R): [J].

        F and its estimate are both at most the first two terms, by Cauchy and Schwarz, and at least
        F(Φᵀ Φ, R), as F grows with each argument. By the same two the bound is no larger than
        2 √(tr C · tr R). Of more rows than are sampled it rests on the sample of the estimate.
        """
        K, R = self._parts(q, p)
        most = linalg.fidelity(K.inside, R.inside) + tf.sqrt(K.outside * R.outside)
        return 2.0 * (most - linalg.fidelity(K.low_rank, R.inside))

    def _parts(self, q: GaussianVector, p: GaussianVector) -> tuple[_Parts, _Parts]:
        """Return K and R inside and outside the span."""
        r, k = q.process.kernel, p.process.kernel
        features = weight_space.features(k)
        full = 0 if features is None else int(features(p.X[:1]).shape[-1])  # the rank of K
        if (
            self.rank is None
            and isinstance(r, OnRegulariser)
            and r.kernel is k
            and (not full or r.removed(q.X).shape[-2] >= full)
        ):
            K, R = _at_inducing_points(q, p, r)
        else:
            rank = max(PIVOTS, full) if self.rank is None else self.rank
            candidates = spread_rows(tf.shape(p.X)[0], CANDIDATES * rank)
            among = tf.gather(p.X, candidates)
            pivots = inducing.greedy_pivots(k, among, rank, self.tolerance)
            K, R = _at_points(q, p, tf.gather(among, pivots))
        # A sample of what the low rank leaves may be indefinite, which a fidelity minds in K alone.
        return K._replace(inside=linalg.positive_part(K.inside)), R


def _at_points(q: GaussianVector, p: GaussianVector, S: tf.Tensor) -> tuple[_Parts, _Parts]:
    """Return K and R, with Nyström's method at S and Φ = L⁻¹ k(S, X)."""
    k, r = p.process.kernel, q.process.kernel
    jitter = default_jitter()
    L = linalg.cholesky(outputs.covariance(k, S), jitter=jitter, name="P's covariance at pivots")
    factor = tf.linalg.triangular_solve(L, outputs.covariance(k, S, p.X))
    gram, span = _span(factor, p.X, SAMPLED)
    L = linalg.cholesky(outputs.covariance(r, S), jitter=jitter, name="Q's covariance at pivots")
    product = _times(r, S, q.X, tf.linalg.matrix_transpose(factor))
    C = _rest(k, lambda rows: rows.factor, span)
    E = _rest(r, lambda rows: tf.linalg.triangular_solve(L, outputs.covariance(r, S, rows.X)), span)
    return _parts(p, gram, C, span), _parts(q, _cross(L, product), E, span)


def _at_inducing_points(
    q: GaussianVector, p: GaussianVector, r: OnRegulariser
) -> tuple[_Parts, _Parts]:
    """Return K = ΦᵀΦ + C, and R = ΦᵀT TᵀΦ + C, or R = C + r_0 with Nyström's method for r_0."""
    factor = r.removed(q.X)
    if isinstance(r, SVGPCovariance):
        gram, span = _span(factor, q.X, SAMPLED_OF_CONSTANTS)
        C = _rest(r.kernel, lambda rows: rows.factor, span)
        return _parts(p, gram, C, span), _parts(q, tf.matmul(gram, r.whitened_sqrt()), C, span)
    gram, span = _span(factor, q.X, SAMPLED)
    C = _rest(r.kernel, lambda rows: rows.factor, span)
    own, Z = r.base_kernels[-1], r.inducing_variable
    product = tf.matmul(projection.cross_covariance(own, Z, q.X), factor, transpose_b=True)
    of_own = _rest(own, lambda rows: projection.whitened(own, Z, rows.X), span)
    E = _Rest(C.inside + of_own.inside, C.diagonal + of_own.diagonal)
    cross = _cross(projection.cholesky(own, Z), product)
    return _parts(p, gram, C, span), _parts(q, cross, E, span)


def _span(factor: tf.Tensor, X: tf.Tensor, count: int) -> tuple[tf.Tensor, _Span]:
    """Return Φ Φᵀ, from all rows, and the span, with rows at even distances and those half-way."""
    gram = tf.matmul(factor, factor, transpose_b=True)
    L = linalg.cholesky(gram, jitter=default_jitter(), name="the Gram matrix of low rank")
    B = tf.shape(X)[0]
    T = spread_rows(B, count)
    half = tf.cast(B // (2 * tf.size(T)), T.dtype)  # zero if there are not as many others

    def at(rows: tf.Tensor) -> _Rows:
        some = tf.gather(factor, rows, axis=-1)
        return _Rows(tf.gather(X, rows), some, tf.linalg.triangular_solve(L, some))

    same = tf.cast(half == 0, X.dtype)
    N, t = tf.cast(B, X.dtype), tf.cast(tf.size(T), X.dtype)
    pair = tf.math.divide_no_nan(N * (N - 1.0), t * (t - same))
    return gram, _Span(L, at(T), at(T + half), same, N / t, pair)


def _rest(kernel: Kernel, taken: Callable[[_Rows], tf.Tensor], span: _Span) -> _Rest:
    """Return what is left of a kernel without FᵀF, where F [J, n, t] is what is `taken` at rows."""
    some, others = span.some, span.others
    F, F2 = taken(some), taken(others)
    variance = tf.linalg.matrix_transpose(outputs.variance(kernel, some.X))  # [J, t]
    left = variance - tf.reduce_sum(tf.square(F), axis=-2)
    diagonal = linalg.floor(left, variance, relative=linalg.epsilon(variance.dtype))
    columns = tf.linalg.matrix_transpose(others.basis)
    pairs = tf.matmul(some.basis, _times(kernel, some.X, others.X, columns))
    pairs -= tf.matmul(tf.matmul(some.basis, F, transpose_b=True), tf.matmul(F2, columns))
    pairs = 0.5 * span.pair * (pairs + tf.linalg.matrix_transpose(pairs))
    # Where T' is T the pairs of a row with itself are among them, which have a weight of their own.
    weights = (span.single - span.same * span.pair) * diagonal
    singles = tf.matmul(some.basis * weights[..., None, :], some.basis, transpose_b=True)
    return _Rest(pairs + singles, diagonal)


def _parts(vector: GaussianVector, cross: tf.Tensor, rest: _Rest, span: _Span) -> _Parts:
    """Return a covariance inside and outside the span, from Φ Ψᵀ [J, m, n] and the rest."""
    half = tf.linalg.triangular_solve(span.L, cross)
    low_rank = tf.matmul(half, half, transpose_b=True)
    inside = low_rank + rest.inside
    trace = tf.reduce_sum(variances(vector), axis=-1)
    outside = trace - tf.linalg.trace(inside)
    outside = linalg.floor(outside, trace, relative=linalg.epsilon(trace.dtype))
    return _Parts(low_rank, inside, outside, rest.diagonal)


def _times(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """Return k(X, X2) W: [J, N, P]."""
    if isinstance(kernel, SparseCovariance):
        return kernel.output_product(X, X2, W)
    return tf.matmul(outputs.covariance(kernel, X, X2), W)


def _cross(L: tf.Tensor, product: tf.Tensor) -> tf.Tensor:
    """Return Φ Ψᵀ from r(S, X) Φᵀ, where Ψ = L⁻¹ r(S, X) is not formed: [J, m, n]."""
    return tf.linalg.matrix_transpose(tf.linalg.triangular_solve(L, product))

"""The distance between two covariances, in the span of a low rank and by diagonals outside it."""

from __future__ import annotations

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

SAMPLED = 400
"""What the low rank leaves of a covariance is looked at between so many rows."""

MOST_LEFT_OVER = 0.1
"""The user is told if a larger part of the variances than this is outside the low rank."""


class _Sample(NamedTuple):
    """Some of B rows, standing for all."""

    X: tf.Tensor  # the inputs X_T, [t, D...]
    rows: tf.Tensor  # T, [t]
    single: tf.Tensor  # rows that each stands for, B / t
    pair: tf.Tensor  # pairs that each pair stands for, B (B - 1) / (t (t - 1))


class _Split(NamedTuple):
    """A covariance S = Ψᵀ Ψ + E, with Ψ in the coordinates Φ and E at the sample T."""

    trace: tf.Tensor  # tr S, [J]
    cross: tf.Tensor  # Φ Ψᵀ, [J, m, n]
    kernels: tuple[Kernel, ...]
    taken: tuple[tf.Tensor, ...]  # E_TT is the sum of the kernels less FᵀF for all F, [J, n, t]


class _Parts(NamedTuple):
    """A covariance in the span of Φ's rows and outside it."""

    inside: tf.Tensor  # Uᵀ S U, [J, m, m]
    outside: tf.Tensor  # tr S - tr Uᵀ S U, [J]
    residual: tf.Tensor  # the diagonal of E_TT, [J, t]
    low_rank: tf.Tensor  # Uᵀ Ψᵀ Ψ U, [J, m, m]


class LowRank(CovarianceDistance):
    """F in the span of a few functions, and by diagonals outside it: O(B m²), linear in B.

    Nyström's approximation at m points gives K = ΦᵀΦ + C and R = ΨᵀΨ + E. Let the columns of U be
    orthonormal and span the rows of Φ. Inside that span and outside it,

        F ≈ F(Uᵀ K U, Uᵀ R U) + (tr K - tr Uᵀ K U)^½ (tr R - tr Uᵀ R U)^½ cos(√d, √e),

    where d and e are the diagonals of C and E. To leave out what correlates inside and outside
    raises a fidelity (no quantum channel lowers it: Nielsen and Chuang 2010, section 9.2), so the
    estimate tends to be below W₂². C and E are looked at between 400 rows at most, which stand
    for all; the rest is exact.

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
        traces = tf.reduce_sum(K.residual, axis=-1) * tf.reduce_sum(R.residual, axis=-1)
        cosine = tf.reduce_sum(tf.sqrt(K.residual * R.residual), axis=-1) / tf.sqrt(traces)
        fidelity = linalg.fidelity(K.inside, R.inside)
        fidelity += cosine * tf.sqrt(K.outside * R.outside)
        return linalg.not_negative(total - 2.0 * fidelity)

    def error_bound(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return 2 F(Uᵀ K U, Uᵀ R U) + 2 (tr K - ...)^½ (tr R - ...)^½ - 2 F(Φᵀ Φ, R): [J].

        F and its estimate are both at most the first two terms, by Cauchy and Schwarz, and at least
        F(Φᵀ Φ, R), as F grows with each argument. By the same two the bound is no larger than
        2 √(tr C · tr R). Of more than 400 rows it rests on the sample that the estimate rests on.
        """
        K, R = self._parts(q, p)
        most = linalg.fidelity(K.inside, R.inside) + tf.sqrt(K.outside * R.outside)
        return 2.0 * (most - linalg.fidelity(K.low_rank, R.inside))

    def _parts(self, q: GaussianVector, p: GaussianVector) -> tuple[_Parts, _Parts]:
        """Return K and R inside and outside the span."""
        sample = _sample(p.X)
        r, k = q.process.kernel, p.process.kernel
        features = weight_space.features(k)
        full = 0 if features is None else int(features(p.X[:1]).shape[-1])  # the rank of K
        if (
            self.rank is None
            and isinstance(r, OnRegulariser)
            and r.kernel is k
            and (not full or r.removed(q.X).shape[-2] >= full)
        ):
            factor, K, R = _at_inducing_points(q, p, r, sample)
        else:
            rank = max(PIVOTS, full) if self.rank is None else self.rank
            candidates = spread_rows(tf.shape(p.X)[0], CANDIDATES * rank)
            among = tf.gather(p.X, candidates)
            pivots = inducing.greedy_pivots(k, among, rank, self.tolerance)
            factor, K, R = _at_points(q, p, tf.gather(among, pivots), sample)
        L = linalg.cholesky(K.cross, jitter=default_jitter(), name="the Gram matrix of low rank")
        U = tf.linalg.triangular_solve(L, tf.gather(factor, sample.rows, axis=-1))
        of_p, of_q = _apart(K, L, U, sample), _apart(R, L, U, sample)
        # A sample of what the low rank leaves may be indefinite, which a fidelity minds in K alone.
        return of_p._replace(inside=linalg.positive_part(of_p.inside)), of_q


def _sample(X: tf.Tensor) -> _Sample:
    """Return rows at even distances."""
    rows = spread_rows(tf.shape(X)[0], SAMPLED)
    B, t = tf.cast(tf.shape(X)[0], X.dtype), tf.cast(tf.size(rows), X.dtype)
    single = B / t
    pair = single * (B - 1.0) / tf.maximum(t - 1.0, tf.ones_like(t))
    return _Sample(tf.gather(X, rows), rows, single, pair)


def _at_points(
    q: GaussianVector, p: GaussianVector, S: tf.Tensor, sample: _Sample
) -> tuple[tf.Tensor, _Split, _Split]:
    """Return Φ = L⁻¹ k(S, X), and K and R less their Nyström approximations at S."""
    k, r = p.process.kernel, q.process.kernel
    L = linalg.cholesky(
        outputs.covariance(k, S), jitter=default_jitter(), name="P's covariance at the points"
    )
    factor = tf.linalg.triangular_solve(L, outputs.covariance(k, S, p.X))
    L = linalg.cholesky(
        outputs.covariance(r, S), jitter=default_jitter(), name="Q's covariance at the points"
    )
    cross = _solve_right(_times(r, S, q.X, tf.linalg.matrix_transpose(factor)), L)
    own = tf.linalg.triangular_solve(L, outputs.covariance(r, S, sample.X))
    return factor, _of_regulariser(p, factor, sample), _Split(_trace(q), cross, (r,), (own,))


def _at_inducing_points(
    q: GaussianVector, p: GaussianVector, r: OnRegulariser, sample: _Sample
) -> tuple[tf.Tensor, _Split, _Split]:
    """Return Φ = L⁻¹ K_ZX, K = ΦᵀΦ + C, and R = ΦᵀT TᵀΦ + C, or R = C + r_0 with r_0 split at Z."""
    factor = r.removed(q.X)
    K = _of_regulariser(p, factor, sample)
    if isinstance(r, SVGPCovariance):
        R = K._replace(trace=_trace(q), cross=tf.matmul(K.cross, r.whitened_sqrt()))
        return factor, K, R
    own, Z = r.base_kernels[-1], r.inducing_variable
    product = tf.matmul(projection.cross_covariance(own, Z, q.X), factor, transpose_b=True)
    cross = _solve_right(product, projection.cholesky(own, Z))
    taken = (*K.taken, projection.whitened(own, Z, sample.X))
    return factor, K, _Split(_trace(q), cross, r.base_kernels, taken)


def _of_regulariser(p: GaussianVector, factor: tf.Tensor, sample: _Sample) -> _Split:
    """Return K split by Φ itself."""
    gram = tf.matmul(factor, factor, transpose_b=True)
    taken = tf.gather(factor, sample.rows, axis=-1)
    return _Split(_trace(p), gram, (p.process.kernel,), (taken,))


def _apart(S: _Split, L: tf.Tensor, U: tf.Tensor, sample: _Sample) -> _Parts:
    """Return a covariance inside and outside the span, from a sample U_T of U's rows."""
    W = tf.linalg.triangular_solve(L, S.cross)
    low_rank = tf.matmul(W, W, transpose_b=True)
    variance = sum(tf.linalg.matrix_transpose(outputs.variance(k, sample.X)) for k in S.kernels)
    squares = sum(tf.reduce_sum(tf.square(F), axis=-2) for F in S.taken)
    tiny = linalg.epsilon(low_rank.dtype)
    residual = linalg.floor(variance - squares, variance, relative=tiny)
    # Uᵀ E U from pairs of sampled rows, where the diagonal has a weight of its own
    columns = tf.linalg.matrix_transpose(U)
    rest = sum(tf.matmul(U, _times(k, sample.X, sample.X, columns)) for k in S.kernels)
    for F in S.taken:
        V = tf.matmul(U, F, transpose_b=True)
        rest -= tf.matmul(V, V, transpose_b=True)
    weights = (sample.single - sample.pair) * residual
    rest = sample.pair * rest + tf.matmul(U * weights[..., None, :], columns)
    inside = low_rank + rest
    outside = linalg.floor(S.trace - tf.linalg.trace(inside), S.trace, relative=tiny)
    return _Parts(inside, outside, residual, low_rank)


def _times(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """Return k(X, X2) W: [J, N, P]."""
    if isinstance(kernel, SparseCovariance):
        return kernel.output_product(X, X2, W)
    return tf.matmul(outputs.covariance(kernel, X, X2), W)


def _solve_right(product: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
    """Return (L⁻¹ r(S, X) Φᵀ)ᵀ = Φ Ψᵀ for Ψ = L⁻¹ r(S, X), which is never formed: [J, m, n]."""
    return tf.linalg.matrix_transpose(tf.linalg.triangular_solve(L, product))


def _trace(vector: GaussianVector) -> tf.Tensor:
    return tf.reduce_sum(variances(vector), axis=-1)

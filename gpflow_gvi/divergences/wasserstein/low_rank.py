"""The distance between two covariances of low rank, with their rest seen at a few of the inputs."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from gpflow.config import default_jitter

from ... import checks, inducing, linalg, outputs, projection, weight_space
from ...covariances.svgp import OnRegulariser
from ...evaluation import notice
from ...gaussian_process import GaussianVector
from .base import CovarianceDistance, spread_rows, variances

PIVOTS = 64
"""So many points are taken where nothing else is asked for."""

CANDIDATES = 16
"""Pivots are looked for among at most so many rows each."""

SAMPLED = 25
"""The covariance that the low rank leaves is looked at in so many of its columns."""

MOST_LEFT_OVER = 0.1
"""The user is told if a larger part of the variances than this is outside the low rank."""


class _Split(NamedTuple):
    """A covariance at B inputs as Φᵀ Φ + C, where C's diagonal and some columns are known."""

    factor: tf.Tensor  # Φ, [J, m, B]
    residual: tf.Tensor  # the diagonal of C, [J, B]
    columns: tf.Tensor | None = None  # C_XT, [J, B, t]

    @property
    def explained(self) -> tf.Tensor:
        """The diagonal of Φᵀ Φ: [J, B]."""
        return tf.reduce_sum(tf.square(self.factor), axis=-2)


class LowRank(CovarianceDistance):
    """F from covariances of low rank: O(B m²), linear in B; no B × B matrix is formed.

    K = Φᵀ Φ + C and R = Ψᵀ Ψ + E, with the Nyström approximations at m points, leave C and E
    positive semi-definite. With d and e their diagonals and Π the projection onto Φ's rows,

        F ≈ tr( Φ R Φᵀ )^½ + ρ^½ Σ_b (d_b e_b)^½,    ρ = 1 - tr(Π E) / tr E,

    where the second term takes what is outside Φ for diagonal. In Φ R Φᵀ all of Ψᵀ Ψ and diag(e)
    enters, and a sum over 25 columns of the rest of E stands for that over all B.

    The points are rows of the batch, the pivots of a Cholesky factorisation of K, each where most
    variance is left. If Q is an SVGP covariance on P's kernel they are its inducing points, where
    Φ is known and r = k - Φᵀ Φ + ... is already of this form.

    The error goes with what the low rank leaves: it is small for smooth kernels, and zero, up to
    jitter, where the rank of both kernels is not larger than m, as with m linear features.
    `error_bound` bounds it, and a rest of over a tenth of the variance is told of.

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
        sample = spread_rows(tf.shape(q.X)[0], SAMPLED)
        K, R = self._split(q, p, sample)
        total = tf.reduce_sum(variances(p) + variances(q), axis=-1)
        left = tf.reduce_max(tf.reduce_sum(K.residual + R.residual, axis=-1) / total)
        notice(
            "low_rank: the part {} of the variance is outside the low rank, where only the "
            "diagonals of the covariances are compared. LowRank(rank=...) takes a higher rank; "
            "error_bound bounds the error.",
            tf.where(left > MOST_LEFT_OVER, left, tf.zeros_like(left)),
        )
        rest = _within(K.factor, R, sample)  # Φ E Φᵀ, [J, m, m]
        cross = tf.matmul(K.factor, R.factor, transpose_b=True)
        fidelity = linalg.trace_of_root(tf.matmul(cross, cross, transpose_b=True) + rest)
        fidelity += _outside(K, R, rest)
        return linalg.not_negative(total - 2.0 * fidelity)

    def error_bound(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return 2 Σ_b ( √(d_b r_b) + √(k_b e_b) ), with k, r the variances of P and Q: [J].

        F is a nuclear norm, F(K, R) = ‖K^½ R^½‖_* (Uhlmann 1976). So F grows with each argument and
        F(K + C, R) ≤ F(K, R) + F(C, R), where F(C, R) ≤ Σ_b √(C_bb R_bb), as reading the diagonals
        does not lower a fidelity (Nielsen and Chuang 2010, section 9.2.2). Hence the first term for
        leaving C to the diagonals, and the second, F(Φᵀ Φ, E) at most, for not knowing all of E.
        By Cauchy and Schwarz it is at most 2 √(tr C · tr R) + 2 √(tr K · tr E). Of more than
        25 rows it leaves out the error of sampling columns of E, in practice a small part of it.
        """
        K, R = self._split(q, p, None)
        terms = tf.sqrt(K.residual * variances(q)) + tf.sqrt(K.explained * R.residual)
        return 2.0 * tf.reduce_sum(terms, axis=-1)

    def _split(
        self, q: GaussianVector, p: GaussianVector, sample: tf.Tensor | None
    ) -> tuple[_Split, _Split]:
        """Return K and R, split at the same points, and R with the sampled columns."""
        r, k = q.process.kernel, p.process.kernel
        features = weight_space.features(k)
        full = 0 if features is None else int(features(p.X[:1]).shape[-1])  # the rank of K
        if (
            self.rank is None
            and isinstance(r, OnRegulariser)
            and r.kernel is k
            and (not full or r.removed(q.X).shape[-2] >= full)
        ):
            return _at_inducing_points(q, p, r, sample)
        rank = max(PIVOTS, full) if self.rank is None else self.rank
        candidates = spread_rows(tf.shape(p.X)[0], CANDIDATES * rank)
        among = tf.gather(p.X, candidates)
        rows = tf.gather(candidates, inducing.greedy_pivots(k, among, rank, self.tolerance))
        return _at_rows(p, rows, None, "P's covariance"), _at_rows(
            q, rows, sample, "Q's covariance"
        )


def _at_rows(
    vector: GaussianVector, rows: tf.Tensor, sample: tf.Tensor | None, name: str
) -> _Split:
    """Split a covariance by k(X, S) k(S, S)⁻¹ k(S, X)."""
    kernel, S = vector.process.kernel, tf.gather(vector.X, rows)
    L = linalg.cholesky(outputs.covariance(kernel, S), jitter=default_jitter(), name=name)
    factor = tf.linalg.triangular_solve(L, outputs.covariance(kernel, S, vector.X))
    residual = _left(variances(vector), factor)
    if sample is None:
        return _Split(factor, residual)
    columns = outputs.covariance(kernel, vector.X, tf.gather(vector.X, sample))
    return _Split(factor, residual, columns - _columns(factor, sample))


def _at_inducing_points(
    q: GaussianVector, p: GaussianVector, r: OnRegulariser, sample: tf.Tensor | None
) -> tuple[_Split, _Split]:
    """Split K = AᵀA + C and R = C + BᵀB, or R = C + r_0, with r_0 split at the same points."""
    removed, factor = r.factors(q.X)
    residual = _left(variances(p), removed)
    K, rest = _Split(removed, residual), residual
    remaining = [(r.kernel, removed)]
    if factor is None:
        own = r.base_kernels[-1]
        factor = projection.whitened(own, r.inducing_variable, q.X)
        rest += _left(tf.linalg.matrix_transpose(outputs.variance(own, q.X)), factor)
        remaining.append((own, factor))
    if sample is None:
        return K, _Split(factor, rest)
    T = tf.gather(q.X, sample)
    columns = [
        outputs.covariance(kernel, q.X, T) - _columns(part, sample) for kernel, part in remaining
    ]
    return K, _Split(factor, rest, sum(columns[1:], columns[0]))


def _columns(factor: tf.Tensor, sample: tf.Tensor) -> tf.Tensor:
    """Return columns of Φᵀ Φ: [J, B, t]."""
    return tf.matmul(factor, tf.gather(factor, sample, axis=-1), transpose_a=True)


def _left(variance: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Return what a factor leaves of the variance: [J, B]."""
    left = variance - tf.reduce_sum(tf.square(factor), axis=-2)
    return linalg.floor(left, variance, relative=linalg.epsilon(left.dtype))


def _within(factor: tf.Tensor, R: _Split, sample: tf.Tensor) -> tf.Tensor:
    """Return Φ E Φᵀ, with a sum over sampled columns for that over what is off the diagonal."""
    share = tf.cast(tf.shape(factor)[-1] / tf.size(sample), factor.dtype)
    some = tf.gather(factor, sample, axis=-1)  # Φ_T, [J, m, t]
    diagonal = tf.gather(R.residual, sample, axis=-1)[..., None, :]
    off = tf.matmul(factor, R.columns) - some * diagonal  # [J, m, t]
    rest = share * tf.matmul(off, some, transpose_b=True)
    rest = 0.5 * (rest + tf.linalg.matrix_transpose(rest))
    return rest + tf.matmul(factor * R.residual[..., None, :], factor, transpose_b=True)


def _outside(K: _Split, R: _Split, rest: tf.Tensor) -> tf.Tensor:
    """Return ρ^½ Σ_b (d_b e_b)^½: [J]."""
    gram = tf.matmul(K.factor, K.factor, transpose_b=True)
    L = linalg.cholesky(gram, jitter=default_jitter(), name="the Gram matrix of low rank")
    half = tf.linalg.triangular_solve(L, tf.eye(tf.shape(L)[-1], dtype=L.dtype))
    inside = tf.reduce_sum(half * tf.matmul(half, rest), axis=(-2, -1))  # tr Π E
    rho = 1.0 - inside / tf.reduce_sum(R.residual, axis=-1)
    rho = tf.maximum(rho, tf.cast(linalg.epsilon(rho.dtype), rho.dtype))
    return tf.sqrt(rho) * tf.reduce_sum(tf.sqrt(K.residual * R.residual), axis=-1)

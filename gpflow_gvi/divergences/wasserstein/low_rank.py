"""The distance between two covariances, in the span of a low rank and by diagonals outside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..._core import checks, linalg, outputs
from ..._core.notices import notice
from ...covariances import gram
from ...covariances.svgp import OnRegulariser, SVGPCovariance
from ...gaussian_process import GaussianVector
from ...kernels import finite_features
from ...regulariser import pivots
from .estimators import CovarianceDistance, among_rows, spread_rows, variances
from .fidelity import fidelity

PIVOTS = 64
"""The default number of points."""

CANDIDATES = 12
"""The number of rows for each pivot among which pivots are looked for; 2 where they are many."""

MANY_CANDIDATES = 1_024
"""The number of rows above which they are many, as all covariances among them are computed."""

SAMPLED = 300
"""The maximal number of rows, and of other rows, between which the rest is evaluated."""

SAMPLED_OF_CONSTANTS = 500
"""That number where no part of the rest is trained."""

SAMPLED_PART = {"inducing points": 0.4, "pivots": 0.6}
"""The part of the rows of a small batch that is sampled: the rest is larger at fewer points."""

MIN_SAMPLED = 200
"""The number of rows up to which all are sampled."""

MAX_OUTSIDE = 0.1
"""The part of the variances outside the low rank above which a notice is given."""


@dataclasses.dataclass(frozen=True)
class _Nystrom:
    """Nyström's approximation ΨᵀΨ of a kernel's covariance, Ψ = L⁻¹ k(S, X), LLᵀ = k(S, S)."""

    kernel: Kernel
    at: Callable[[tf.Tensor], tf.Tensor]
    """From X to Ψ: [J, m, N]."""
    times: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    """From X and W to Ψ W, [J, m, P], where Ψ itself need not be formed."""

    @classmethod
    def at_points(
        cls, kernel: Kernel, S: tf.Tensor, is_point: tf.Tensor | None, name: str
    ) -> _Nystrom:
        """Return the approximation at points S, [m, D...], or at those of them that are one."""

        def among_points(covariance: tf.Tensor) -> tf.Tensor:
            if is_point is None:
                return covariance
            return tf.where(is_point[:, None], covariance, tf.zeros_like(covariance))

        def cross(X: tf.Tensor) -> tf.Tensor:
            return among_points(outputs.covariance(kernel, S, X))

        block = outputs.covariance(kernel, S)
        if is_point is not None:  # padding is independent of all, and Ψ is zero there
            diagonal = tf.linalg.diag_part(block)
            block = tf.linalg.matrix_transpose(among_points(block))
            block = linalg.with_diagonal(among_points(block), diagonal)
        L = linalg.cholesky(block, jitter=default_jitter(), name=f"{name}'s covariance at pivots")
        return cls(
            kernel,
            lambda X: tf.linalg.triangular_solve(L, cross(X)),
            lambda X, W: tf.linalg.triangular_solve(L, tf.matmul(cross(X), W)),
        )

    @classmethod
    def at_inducing_variable(cls, kernel: Kernel, Z: InducingVariables) -> _Nystrom:
        """Return the approximation at inducing variables, of which GPflow knows the covariances."""

        def times(X: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
            product = tf.matmul(gram.cross_covariance(kernel, Z, X), W)
            return tf.linalg.triangular_solve(gram.cholesky(kernel, Z), product)

        return cls(kernel, lambda X: gram.whitened(kernel, Z, X), times)


class _Rows(NamedTuple):
    """Some of the B rows."""

    numbers: tf.Tensor  # T, [t]
    X: tf.Tensor  # X_T, [t, D...]
    factor: tf.Tensor  # Φ_T, [J, m, t]
    basis: tf.Tensor  # U_Tᵀ, [J, m, t]


class _Rest(NamedTuple):
    """What a Nyström approximation leaves of a covariance, such as C."""

    inside: tf.Tensor  # Uᵀ C U, [J, m, m]
    diagonal: tf.Tensor  # of C at T, [J, t]


class _Parts(NamedTuple):
    """A covariance S = ΨᵀΨ + E in the span and outside it."""

    inside: tf.Tensor  # Uᵀ S U, [J, m, m]
    outside: tf.Tensor  # tr S - tr Uᵀ S U, [J]
    rest: tf.Tensor  # the diagonal of E at T, [J, t]


class _Span:
    """The span of Φ's rows, of which U = ΦᵀL⁻ᵀ is an orthonormal basis, where ΦΦᵀ = LLᵀ.

    All rows enter ΦΦᵀ and ΨΦᵀ. What is left of the covariances is evaluated between rows T at even
    distances and rows T' half-way between them, or all rows where a batch is small.
    """

    def __init__(
        self, factor: tf.Tensor, X: tf.Tensor, count: int, points: str = "inducing points"
    ) -> None:
        self.gram = tf.matmul(factor, factor, transpose_b=True)  # ΦΦᵀ, [J, m, m]
        L = linalg.cholesky(self.gram, jitter=default_jitter(), name="the Gram matrix of low rank")
        self._inverse = linalg.inverse_of_triangular(L)
        self._X = X
        B = tf.shape(X)[0]
        sampled = tf.cast(SAMPLED_PART[points] * tf.cast(B, tf.float64), B.dtype)
        T = spread_rows(B, tf.minimum(count, tf.maximum(MIN_SAMPLED, sampled)))
        half = tf.cast(B // (2 * tf.size(T)), T.dtype)  # zero if there are not as many others

        def at(rows: tf.Tensor) -> _Rows:
            some = tf.gather(factor, rows, axis=-1)
            return _Rows(rows, tf.gather(X, rows), some, tf.matmul(self._inverse, some))

        self._some = at(T)
        self._others = at(T + half)
        same = tf.cast(half == 0, X.dtype)  # one if T' is T
        N, t = tf.cast(B, X.dtype), tf.cast(tf.size(T), X.dtype)
        # How many pairs of two rows each of T × T' stands for; where T' is T the pairs of a row
        # with itself are among them, which have a weight of their own.
        self._pair = tf.math.divide_no_nan(N * (N - 1.0), t * (t - same))
        self._single = N / t - same * self._pair

    def rest(
        self,
        kernel: Kernel,
        factor: Callable[[_Rows], tf.Tensor],
        projection: Callable[[_Rows], tf.Tensor] | None = None,
    ) -> _Rest:
        """Return the remainder of a kernel without FᵀF.

        :param factor: the factor F at rows: [J, n, t].
        :param projection: F U at rows, [J, n, m], where there is a shorter way.
        """

        def projected(rows: _Rows) -> tf.Tensor:
            return tf.matmul(factor(rows), rows.basis, transpose_b=True)

        some, others = self._some, self._others
        F = factor(some)
        variance = tf.linalg.matrix_transpose(outputs.variance(kernel, some.X))  # [J, t]
        left = variance - tf.reduce_sum(tf.square(F), axis=-2)
        diagonal = linalg.floor(left, variance, relative=linalg.epsilon(variance.dtype))
        columns = tf.linalg.matrix_transpose(others.basis)
        covariance = among_rows(kernel, self._X, some.numbers, others.numbers)
        pairs = tf.matmul(some.basis, tf.matmul(covariance, columns))
        inside = tf.matmul(F, some.basis, transpose_b=True)
        pairs -= tf.matmul(inside, (projection or projected)(others), transpose_a=True)
        pairs = 0.5 * self._pair * (pairs + tf.linalg.matrix_transpose(pairs))
        weighted = some.basis * (self._single * diagonal)[..., None, :]
        return _Rest(pairs + tf.matmul(weighted, some.basis, transpose_b=True), diagonal)

    def parts(self, vector: GaussianVector, cross: tf.Tensor, rest: _Rest) -> _Parts:
        """Return a covariance inside and outside, from Φ Ψᵀ [J, m, n] and the rest."""
        half = tf.matmul(self._inverse, cross)
        inside = tf.matmul(half, half, transpose_b=True) + rest.inside
        trace = tf.reduce_sum(variances(vector), axis=-1)
        outside = trace - tf.linalg.trace(inside)
        outside = linalg.floor(outside, trace, relative=linalg.epsilon(trace.dtype))
        return _Parts(inside, outside, rest.diagonal)


class LowRank(CovarianceDistance):
    """F in the span of a few functions, and by diagonals outside it: O(B m²), linear in B.

    Nyström's approximation at m points gives K = ΦᵀΦ + C and R = ΨᵀΨ + E. Let the columns of U be
    orthonormal and span the rows of Φ. Inside that span and outside it,

        F ≈ F(Uᵀ K U, Uᵀ R U) + (tr K - tr Uᵀ K U)^½ (tr R - tr Uᵀ R U)^½ cos(√d, √e),

    where d and e are the diagonals of C and E. To leave out what correlates inside and outside
    raises a fidelity (no quantum channel lowers it: Nielsen and Chuang 2010, section 9.2), so the
    estimate tends to be below W₂². At most 300 columns of 300 rows of C and E stand for all, or
    500 of 500 if they are the same, as for an inducing distribution; in a small batch it is two
    fifths of the rows, or three at pivots. The rest is exact.

    The points are rows of the batch, the pivots of a Cholesky factorisation of K, each where most
    variance is left. If Q is an SVGP covariance on P's kernel they are its inducing points, where
    Φ is known and r = k - ΦᵀΦ + ... is already of this form.

    The error goes with what the low rank leaves: it is small for smooth kernels, and zero, up to
    jitter, where the rank of both kernels is not larger than m, as with m linear features.
    A notice reports more than a tenth of the variance outside.

    :param rank: m, of pivots; fewer where fewer leave no more than `tolerance`. If not given, the
        inducing points where they serve, and elsewhere 64 pivots, or as many as k has features.
    :param tolerance: the part of tr K that pivots may leave.
    """

    def __init__(self, rank: int | None = None, *, tolerance: float = 1e-6) -> None:
        if rank is not None:
            checks.count("rank", rank)
        checks.fraction("tolerance", tolerance)
        self.rank = rank
        self.tolerance = tolerance

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        K, R = self._parts(q, p)
        total = tf.reduce_sum(variances(p) + variances(q), axis=-1)
        left = tf.reduce_max((K.outside + R.outside) / total)
        notice(
            "low_rank: the part {} of the variance is outside the low rank, where only the "
            "diagonals of the covariances are compared. LowRank(rank=...) takes a higher rank.",
            tf.where(left > MAX_OUTSIDE, left, tf.zeros_like(left)),
        )
        return linalg.not_negative(total - 2.0 * _fidelity(K, R))

    def _parts(self, q: GaussianVector, p: GaussianVector) -> tuple[_Parts, _Parts]:
        """Return K = ΦᵀΦ + C and R inside and outside of the span."""
        r, k = q.process.kernel, p.process.kernel
        Z = self._inducing_variable(q, p)
        if Z is None:
            points = self._pivots(p)
            of_k, of_r = _Nystrom.at_points(k, *points, "P"), _Nystrom.at_points(r, *points, "Q")
        else:  # r is C + ΦᵀT TᵀΦ, or C and a kernel of its own
            of_k = _Nystrom.at_inducing_variable(k, Z)
            of_r = _Nystrom.at_inducing_variable(r.base_kernels[-1], Z)
        is_svgp = Z is not None and isinstance(r, SVGPCovariance)
        factor = of_k.at(q.X)
        count = SAMPLED_OF_CONSTANTS if is_svgp else SAMPLED
        span = _Span(factor, q.X, count, "pivots" if Z is None else "inducing points")
        C = span.rest(k, lambda rows: rows.factor)
        if is_svgp:
            cross, E = tf.matmul(span.gram, r.whitened_sqrt()), C
        else:
            product = of_r.times(q.X, tf.linalg.matrix_transpose(factor))
            cross = tf.linalg.matrix_transpose(product)
            E = span.rest(
                of_r.kernel,
                lambda rows: of_r.at(rows.X),
                lambda rows: of_r.times(rows.X, tf.linalg.matrix_transpose(rows.basis)),
            )
            if Z is not None:
                E = _Rest(C.inside + E.inside, C.diagonal + E.diagonal)
        K, R = span.parts(p, span.gram, C), span.parts(q, cross, E)
        # A sample of what the low rank leaves may be indefinite, which a fidelity minds in K alone.
        return K._replace(inside=linalg.positive_part(K.inside)), R

    def _inducing_variable(self, q: GaussianVector, p: GaussianVector) -> InducingVariables | None:
        """Return the inducing variable of an SVGP covariance on k, if its span serves."""
        r, k = q.process.kernel, p.process.kernel
        if self.rank is not None or not isinstance(r, OnRegulariser) or r.kernel is not k:
            return None
        num_features = _num_features(p)
        if num_features and r.removed(q.X).shape[-2] < num_features:
            return None
        return r.inducing_variable

    def _pivots(self, p: GaussianVector) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the rows of the batch at which k leaves most variance, [m, D...], and which count.

        All count where that is None.
        """
        rank = max(PIVOTS, _num_features(p)) if self.rank is None else self.rank
        count = max(2 * rank, min(CANDIDATES * rank, MANY_CANDIDATES))
        among = tf.gather(p.X, spread_rows(tf.shape(p.X)[0], count))
        rows, chosen = pivots.greedy_pivots(p.process.kernel, among, rank, self.tolerance)
        return tf.gather(among, rows), chosen


def _fidelity(K: _Parts, R: _Parts) -> tf.Tensor:
    """Return the estimate of F: [J]."""
    norms = tf.reduce_sum(K.rest, axis=-1) * tf.reduce_sum(R.rest, axis=-1)
    cosine = tf.reduce_sum(tf.sqrt(K.rest * R.rest), axis=-1) / tf.sqrt(norms)
    return fidelity(K.inside, R.inside) + cosine * tf.sqrt(K.outside * R.outside)


def _num_features(p: GaussianVector) -> int:
    """Return the rank of a kernel of finitely many features; zero for others."""
    features = finite_features.features(p.process.kernel)
    return 0 if features is None else int(features(p.X[:1]).shape[-1])

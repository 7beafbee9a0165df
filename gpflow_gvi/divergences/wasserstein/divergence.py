"""The divergence: means apart, covariances by the estimator of one's choice."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..._core import checks
from ...gaussian_process import GaussianProcess, GaussianVector
from ..base import Divergence
from ..contexts import Context
from .estimators import CovarianceDistance, Exact, Landmark, Marginal, NewtonSchulz
from .low_rank import LowRank

ESTIMATORS: dict[str, type[CovarianceDistance]] = {
    kind.name: kind for kind in (Exact, NewtonSchulz, LowRank, Landmark, Marginal)
}


class GaussianWasserstein(Divergence):
    """The squared 2-Wasserstein distance on function space, summed over independent outputs.

    Wild et al. (2022), "Generalized variational inference in function spaces", eq. for the batch
    estimate: with B inputs, K = k(X, X) and R = r(X, X),

        W₂² ≈ (1/B) [ Σ δ(x)² + tr K + tr R - 2 F ],   F = tr( (K^½ R K^½)^½ ).

    :param estimator: estimates the covariance terms: "exact", "newton_schulz" (the same by matrix
        products alone), "low_rank" or "landmark" (linear in B), "marginal" (an upper bound whose
        minimum is a Q without variance), or a `CovarianceDistance` with options of its own, as
        `LowRank(rank=200)`.
    :param context: where to evaluate it instead of at the inputs that it is given.
    """

    def __init__(
        self, estimator: str | CovarianceDistance = "exact", *, context: Context | None = None
    ) -> None:
        super().__init__(context=context)
        if isinstance(estimator, str):
            checks.one_of("estimator", estimator, sorted(ESTIMATORS))
            estimator = ESTIMATORS[estimator]()
        checks.instance("estimator", estimator, CovarianceDistance)
        self.estimator = estimator

    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        means = tf.reduce_sum(tf.square(q.mean - p.mean))
        covariances = _total(self.estimator(q, p), q, p)
        return (means + covariances) / tf.cast(tf.shape(q.X)[0], means.dtype)

    @check_shapes(
        "X: [N, D...]",
        "return: []",
    )
    def error_bound(self, q: GaussianProcess, p: GaussianProcess, X: TensorType) -> tf.Tensor:
        """Return a bound of the error of the estimator at X, against "exact".

        It is usually many times the error; each estimator's own says what it rests on.

        :param q: the variational process Q.
        :param p: the regulariser P.
        :param X: the inputs, [N, D]; the context is left aside.
        """
        at_q, at_p = q.at(X), p.at(X)
        bound = _total(self.estimator.error_bound(at_q, at_p), at_q, at_p)
        return bound / tf.cast(tf.shape(at_q.X)[0], bound.dtype)


def _total(distances: tf.Tensor, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
    """Return the sum over outputs, where one distance may stand for all of them."""
    return tf.reduce_sum(tf.broadcast_to(distances, [max(q.num_outputs, p.num_outputs)]))

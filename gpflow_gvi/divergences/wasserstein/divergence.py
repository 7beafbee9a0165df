"""The divergence: means apart, covariances by the estimator of one's choice."""

from __future__ import annotations

import tensorflow as tf

from ..._core import checks
from ...gaussian_process import GaussianVector
from ..base import Divergence
from ..contexts import Context
from .estimators import CovarianceDistance, Exact, Landmark, Marginal, NewtonSchulz
from .low_rank import LowRank

ESTIMATORS: dict[str, type[CovarianceDistance]] = {
    "exact": Exact,
    "newton_schulz": NewtonSchulz,
    "low_rank": LowRank,
    "landmark": Landmark,
    "marginal": Marginal,
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
        distances = self.estimator(q, p)  # one may stand for all outputs
        J = max(q.num_outputs, p.num_outputs)
        covariances = tf.reduce_sum(tf.broadcast_to(distances, [J]))
        return (means + covariances) / tf.cast(tf.shape(q.X)[0], means.dtype)

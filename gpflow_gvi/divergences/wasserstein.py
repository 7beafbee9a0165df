"""The 2-Wasserstein distance between Gaussian processes, as Gaussian measures on L²(X, ρ).

Wild et al. (2022), "Generalized variational inference in function spaces", eq. for the batch
estimate: with B inputs, K = k(X, X) and R = r(X, X),

    W₂² ≈ (1/B) [ Σ δ(x)² + tr K + tr R - 2 F ],   F = tr( (K^½ R K^½)^½ ).
"""

from __future__ import annotations

import abc
from typing import ClassVar

import tensorflow as tf

from .. import linalg
from ..contexts import Context
from ..gaussian_process import GaussianVector
from .base import Divergence


class CovarianceDistance(abc.ABC):
    """An estimator of tr K + tr R - 2 F, what W₂² is apart from the means."""

    name: ClassVar[str]

    @abc.abstractmethod
    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return the estimate for each output: [J]."""


class Exact(CovarianceDistance):
    """F from an eigendecomposition: O(B³), no approximation beyond that of ρ by the batch."""

    name = "exact"

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        J = max(q.num_outputs, p.num_outputs)
        K, R = (_for_outputs(vector.covariance, J) for vector in (p, q))
        traces = tf.linalg.trace(K) + tf.linalg.trace(R)
        return linalg.not_negative(traces - 2.0 * linalg.fidelity(K, R))


class Marginal(CovarianceDistance):
    """F left out, which gives an upper bound in O(B)."""

    name = "marginal"

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R: [J]."""
        return tf.reduce_sum(p.variance + q.variance, axis=0)


ESTIMATORS: dict[str, type[CovarianceDistance]] = {kind.name: kind for kind in (Exact, Marginal)}


class GaussianWasserstein(Divergence):
    """The squared 2-Wasserstein distance on function space, summed over independent outputs.

    :param estimator: "exact" or "marginal", or a `CovarianceDistance`.
    :param context: where to evaluate it instead of at the inputs that it is given.
    """

    def __init__(
        self, estimator: str | CovarianceDistance = "exact", *, context: Context | None = None
    ) -> None:
        super().__init__(context=context)
        if isinstance(estimator, str):
            if estimator not in ESTIMATORS:
                raise ValueError(
                    f"estimator is {estimator!r}; it must be one of {sorted(ESTIMATORS)}."
                )
            estimator = ESTIMATORS[estimator]()
        self.estimator = estimator

    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        means = tf.reduce_sum(tf.square(q.mean - p.mean))
        covariances = tf.reduce_sum(self.estimator(q, p))
        return (means + covariances) / tf.cast(tf.shape(q.X)[0], means.dtype)


def _for_outputs(covariance: tf.Tensor, J: int) -> tf.Tensor:
    return tf.broadcast_to(covariance, [J, *tf.unstack(tf.shape(covariance)[1:])])

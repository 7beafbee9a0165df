"""Rows whose observation says nothing of f: found by a likelihood that allows for them, left out.

An observation is one of f with Gaussian noise, or with probability ε anything in the range of Y:

    p(y | f) = (1 - ε) N(y; f, σ²) + ε / R

Box and Tiao (1968), "A Bayesian approach to some outlier problems"; for Gaussian processes Kuss
(2006), section 5.4. As a function of f, -log p is bounded, as the γ-loss is, and its parameters ε
and σ² are fitted to the data by the evidence. With the law N(μ, v) of f(x) given all other rows an
observation is an outlier with the probability

    ε / R  /  ((1 - ε) N(y; μ, v + σ²) + ε / R)
"""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.utilities import positive
from scipy import stats

from .._core import images
from .._core.data import Data
from .._core.notices import logger
from ..regulariser.evidence import DataEvidence
from ..regulariser.fit import fit_regulariser
from ..regulariser.leave_one_out import leave_one_out
from ..regulariser.site_fit import sites_of
from ..regulariser.sites import left_out
from .row_facts import left_out_together
from .rows.scaling import Scaling
from .settings import RegulariserSettings

MAX_FRACTION = 0.5
"""ε is below this: what most rows say is not an outlier."""

WINSOR = 3.0
"""Kernels are chosen for observations within this many robust standard deviations."""


class Outliers(NamedTuple):
    """The rows that were left out of a fit."""

    rows: AnyNDArray
    """Their numbers among the rows that were given, in ascending order: [n]."""
    probability: AnyNDArray
    """The probability that each of them is an outlier, given the other rows: [n]."""
    fraction: float
    """ε, the fraction of outliers that was estimated."""


class Contaminated(gpflow.likelihoods.ScalarLikelihood):
    """(1 - ε) N(y; f, σ²) + ε / R.

    :param width: R, that of the range of each output: [J].
    """

    def __init__(self, width: AnyNDArray) -> None:
        super().__init__()
        self.width = width
        self.variance = Parameter(0.1, transform=positive(lower=1e-6))
        low, high = np.array([1e-4, MAX_FRACTION], default_float())
        self.fraction = Parameter(0.1, transform=tfp.bijectors.Sigmoid(low, high))

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        normal = gpflow.logdensities.gaussian(Y, F, self.variance)
        return tf.reduce_logsumexp(tf.stack(self._terms(normal)), axis=0)

    def _terms(self, normal: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the logarithms of both terms, from that of the Gaussian density."""
        elsewhere = tf.math.log(self.fraction / self.width) + tf.zeros_like(normal)
        return tf.math.log(1.0 - self.fraction) + normal, elsewhere

    def probability(self, mean: TensorType, variance: TensorType, Y: TensorType) -> tf.Tensor:
        """Return the probability that each y is an outlier, where f is N(m, v): [N, J]."""
        normal = gpflow.logdensities.gaussian(Y, mean, variance + self.variance)
        near, elsewhere = self._terms(normal)
        return tf.sigmoid(elsewhere - near)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.variance + tf.zeros_like(F)


def find(data: RegressionData, settings: RegulariserSettings, seed: int) -> Outliers:
    """Return the rows of (X, Y), in any units, of which an output is rather an outlier than not."""
    X, Y = (np.asarray(part) for part in Data.of(data))
    images.refuse_sets(X, are_images=False)
    scale = stats.median_abs_deviation(Y, scale="normal")  # of a standard normal it is one
    scale = np.where(scale > 0.0, scale, Scaling.of(Y).scale).astype(Y.dtype)
    units = Scaling.of(X), Scaling(np.median(Y, axis=0), scale)
    X, Y = (to.standard(part).numpy() for to, part in zip(units, (X, Y), strict=True))
    order = np.random.default_rng(seed).permutation(len(X))
    first = order[: settings.max_rows]
    kernels = settings.recipe.kernels_of_numbers(X[first], np.clip(Y[first], -WINSOR, WINSOR))
    fits = [
        fit_regulariser(
            (X[first], Y[first]),
            kernel,
            settings.count(len(first)),
            likelihood=Contaminated(np.ptp(Y, axis=0)),
            evidence=DataEvidence(),
            minimise=settings.minimise,
            max_rounds=1,
            seed=seed,
        )
        for kernel in kernels
    ]
    best = max(fits, key=lambda fit: fit.log_evidence)
    likelihood: Contaminated = best.likelihood
    Z, _ = settings.select(X, settings.count(len(X)), kernel=best.prior.kernel, seed=seed)
    sites = sites_of(likelihood, best.prior, Z, (tf.constant(X), tf.constant(Y)))
    observed, groups = (X, sites.Y), left_out_together(X)
    of_y = leave_one_out(best.prior, sites.variance, Z, observed, groups)
    mean, variance = left_out(of_y, sites)
    probability = np.max(likelihood.probability(mean, variance, Y), axis=1)  # [N]
    rows = np.flatnonzero(probability > 0.5)
    logger.info("%d of %d rows are outliers.", len(rows), len(X))
    return Outliers(rows, probability[rows], float(likelihood.fraction.numpy()))

"""How far a network is to be trusted, by the density of rows that it has not seen."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import RegressionData, TensorType
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import positive, set_trainable

from .._core.data import Data
from .._core.graphs import deepcopy
from .._core.row_blocks import by_blocks
from ..covariances import Tempered
from ..gaussian_process import GaussianProcess
from ..losses import Marginals
from ..mean_functions import NetworkOutputs
from ..models import GVI
from ..prediction.class_probabilities import BLOCK
from ..regulariser.expectations import log_predictive_density
from ..regulariser.lbfgs import lbfgs

MAX_ROWS = 5000
"""The scales are fitted to not more rows than these."""


def scaled_by(model: GVI, validation_data: RegressionData) -> GVI:
    """Return a model whose mean is a network's with its scales fitted to held-out rows.

    Of labels they are τ and α in f ~ GP(τ h, τ² α r), for all classes; of numbers α_j and the
    variance of the noise in y_j ~ N(h_j, α_j r_j + σ_j²). They maximise the predictive density of
    the rows with the prior log τ, log α ~ N(0, 1), so that a few rows leave them as they are.

    :param model: with `NetworkOutputs` for its mean; it is not changed.
    :param validation_data: rows that the network has not seen.
    """
    X, Y = Data.of([part[:MAX_ROWS] for part in validation_data], model.likelihood)
    mean, variance = by_blocks(model.predict_f, X, size=BLOCK)
    at = Marginals(X, tf.constant(mean), tf.constant(variance), Y)
    factor, alpha, likelihood = _scales(model.likelihood, at)
    scaled = deepcopy(model)
    Q = scaled.variational
    alpha = Parameter(alpha, transform=positive(lower=0.0), trainable=False)
    scaled.variational = GaussianProcess(
        NetworkOutputs(mean.shape[-1], factor), Tempered(Q.kernel, alpha)
    )
    scaled.likelihood = likelihood
    return scaled


Scales = tuple[TensorType, TensorType, Likelihood]
"""What the mean and the variance of f are multiplied by, and the likelihood."""


@singledispatch
def _scales(likelihood: Likelihood, at: Marginals) -> Scales:
    """Return the scales under a likelihood of classes."""
    logs = tf.Variable(tf.zeros([2], at.f_mean.dtype))  # of τ and α

    @tf.function(autograph=False)
    def loss() -> tf.Tensor:
        factor, alpha = tf.unstack(tf.exp(logs))
        variance = factor**2 * alpha * at.f_variance
        density = log_predictive_density(likelihood, at.X, factor * at.f_mean, variance, at.Y)
        return -tf.reduce_mean(density) + 0.5 * tf.reduce_sum(tf.square(logs)) / len(at.Y)

    lbfgs(loss, [logs])
    factor, alpha = np.exp(logs.numpy())
    return factor, factor**2 * alpha, likelihood


@_scales.register
def _(likelihood: Gaussian, at: Marginals) -> Scales:
    errors = tf.square(at.Y - at.f_mean)  # [N, J]
    alpha = tf.Variable(tf.zeros_like(errors[0]))  # its logarithm, [J]
    fixed = likelihood.conditional_variance(at.X[:1], at.f_mean[:1])[0]
    noise = tf.Variable(tf.math.log(fixed + tf.zeros_like(alpha)))  # its logarithm, [J]

    @tf.function(autograph=False)
    def loss() -> tf.Tensor:
        variance = tf.exp(alpha) * at.f_variance + tf.exp(noise)
        density = tf.math.log(variance) + errors / variance
        return 0.5 * tf.reduce_sum(tf.reduce_mean(density, 0) + tf.square(alpha) / len(at.Y))

    lbfgs(loss, [alpha, noise] if likelihood.trainable_variables else [alpha])
    variance = Parameter(np.exp(noise.numpy()), transform=positive(lower=0.0))
    set_trainable(variance, bool(likelihood.trainable_variables))
    return 1.0, np.exp(alpha.numpy()), Gaussian(variance, variance_lower_bound=0.0)

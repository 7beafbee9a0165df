"""Observations and latent functions: what a constant f would be, and what f could be at each row.

Under Gaussian noise f is the mean of y, and P's prior mean is zero in standard units. Under other
likelihoods, where Y keep their units, P starts from the constant that fits best.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.functions import Constant, MeanFunction, Zero
from gpflow.likelihoods import Likelihood, SwitchedLikelihood
from gpflow.likelihoods.multilatent import MultiLatentLikelihood

from ..._core import labels
from ..._core.data import Data
from ...likelihoods import is_gaussian, usable
from ...regulariser.lbfgs import lbfgs
from .log_scale import LogScale
from .scaling import Scaling

Units = Scaling | LogScale
"""The maps between observations and their standard units."""

WIDE = 10.0
"""The standard deviation of a prior of the constant: counts that are all zero have no other."""


def has_level(likelihood: Likelihood | None) -> bool:
    """Return True unless f is the mean of y, or Y are classes."""
    return not (labels.are_labels(likelihood) or is_gaussian(likelihood))


def level(likelihood: Likelihood, data: Data) -> AnyNDArray:
    """Return the constant f of the greatest density of all observations: [J]."""
    constant = tf.Variable(tf.zeros([labels.num_latents(likelihood, data.Y)], default_float()))
    zeros = tf.zeros([len(data.Y), 1], default_float())

    def loss() -> tf.Tensor:
        average = -tf.reduce_mean(likelihood.log_prob(data.X, zeros + constant, data.Y))
        return average + 0.5 * tf.reduce_sum(tf.square(constant / WIDE)) / len(data.Y)

    lbfgs(loss, [constant])
    return np.asarray(constant)


def responses(likelihood: Likelihood | None, data: Data) -> AnyNDArray:
    """Return values that latent functions could have at the observations: [N, J].

    With s_n = ∂/∂f log p(y_n | f) at the constant c of the greatest density they are
    c + (s_n - mean(s)) / mean(s²), a step of Fisher's scoring for each row. But for the prior of
    the constant mean(s) is zero; where all observations are equal there is nothing else in s.
    """
    if likelihood is None or not has_level(likelihood):
        return np.asarray(labels.responses(likelihood, data.Y))
    likelihood = usable(likelihood)
    constant = level(likelihood, data)
    F = tf.constant(np.tile(constant, [len(data.Y), 1]))
    with tf.GradientTape() as tape:
        tape.watch(F)
        total = tf.reduce_sum(likelihood.log_prob(data.X, F, data.Y))
    scores = tape.gradient(total, F).numpy()  # [N, J]
    tiny = np.finfo(scores.dtype).tiny
    steps = scores - np.mean(scores, axis=0)
    return constant + steps / np.maximum(np.mean(np.square(scores), axis=0), tiny)


def prior_mean(likelihood: Likelihood | None, responses: AnyNDArray) -> MeanFunction:
    """Return m_P to start from: zero, or the constant that fits best.

    :param responses: those of `responses`, whose average this constant is.
    """
    J = responses.shape[-1]
    return Constant(np.mean(responses, axis=0)) if has_level(likelihood) else Zero(J)


@functools.singledispatch
def units_of_f(likelihood: Likelihood | None, outputs: Units) -> Units:
    """Return the units of f: those of y where f is its location, or where y has none."""
    return outputs


@units_of_f.register
def _(likelihood: MultiLatentLikelihood, outputs: Scaling) -> Scaling:
    others = (likelihood.latent_dim or 1) - 1  # the first one may be a location
    scale = np.pad(outputs.scale, (0, others), constant_values=1.0)
    return Scaling(np.pad(outputs.shift, (0, others)), scale)


@units_of_f.register
def _(likelihood: SwitchedLikelihood, outputs: Scaling) -> Scaling:
    return Scaling(outputs.shift[:-1], outputs.scale[:-1])


@functools.singledispatch
def units_of_predictions(likelihood: Likelihood | None, outputs: Units) -> Units:
    """Return the units of the columns of `predict_y`: under switched likelihoods, those of each."""
    return outputs


@units_of_predictions.register
def _(likelihood: SwitchedLikelihood, outputs: Scaling) -> Scaling:
    times = len(likelihood.likelihoods)
    return Scaling(np.tile(outputs.shift[:-1], times), np.tile(outputs.scale[:-1], times))


@functools.singledispatch
def in_units(
    outputs: Units, mean: TensorType, covariance: TensorType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean [N, J] and covariance [J, N, N] in original units.

    On a log scale variances are exact, and correlations are those of standard units.
    """
    return outputs.original(mean), covariance * outputs.scale[:, None, None] ** 2


@in_units.register
def _(outputs: LogScale, mean: TensorType, covariance: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    variance = tf.linalg.matrix_transpose(tf.linalg.diag_part(covariance))  # [N, J]
    average, exact = outputs.moments(mean, variance)
    ratio = tf.linalg.matrix_transpose(tf.sqrt(tf.math.divide_no_nan(exact, variance)))
    return average, covariance * ratio[:, :, None] * ratio[:, None, :]

"""Class probabilities of a classifier, and their aleatoric and epistemic entropies."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, Softmax
from scipy.special import entr

from .._core.data import inputs
from .._core.normal_points import normal_points
from .._core.row_blocks import by_blocks
from ..likelihoods import num_classes

BLOCK = 1000
"""The number of rows that are predicted at a time, with their samples of f in memory."""

AT_ONCE = 32
"""The number of points of f that are in memory at once, for probabilities alone."""


class Entropies(NamedTuple):
    """Total, aleatoric and epistemic uncertainty of the class of each row, in nats: [N] each.

    Depeweg, Hernández-Lobato, Doshi-Velez and Udluft (2018), "Decomposition of uncertainty in
    Bayesian deep learning", section 3.
    """

    total: AnyNDArray
    """H[E p(y|f)], the entropy of the predicted probabilities."""

    aleatoric: AnyNDArray
    """E H[p(y|f)], which would remain if f were known. Under `RobustMax` it is a constant."""

    epistemic: AnyNDArray
    """The difference, which is the mutual information of y and f."""

    @classmethod
    def of_members(cls, probabilities: Any) -> Entropies:
        """Return the entropies of an ensemble, or of samples of f.

        :param probabilities: the class probabilities of each member, [S, N, J].
        """
        members = np.asarray(probabilities)
        if members.ndim != 3:
            raise ValueError(f"probabilities has shape {members.shape}; it must be [S, N, J].")
        return _entropies(members.mean(axis=0), entr(members).sum(axis=-1).mean(axis=0))


def class_probabilities(model: Any, X: InputData, *, num_samples: int = 512) -> AnyNDArray:
    """Return the probability of each class at each row: [N, J].

    :param model: a model of GPflow or of this package with a likelihood of classes.
    :param num_samples: those of f, under `Softmax`. They are quasi-random, the same for all rows,
        so that the prediction of a row depends on that row alone.
    """
    require_classes(model)

    def predict(X: Any) -> tuple[tf.Tensor]:
        return (probabilities_given(model.likelihood, *_marginals(model, X), num_samples),)

    (probabilities,) = by_blocks(predict, inputs("X", X), size=BLOCK)
    return probabilities


def entropies(model: Any, X: InputData, *, num_samples: int = 512) -> Entropies:
    """Return the total, aleatoric and epistemic uncertainty of the class of each row: [N] each.

    :param model: a model of GPflow or of this package with a likelihood of classes.
    :param num_samples: samples of f, for expectations without a closed form.
    """
    require_classes(model)

    def predict(X: Any) -> tuple[tf.Tensor, AnyNDArray]:
        mean, variance = _marginals(model, X)
        points = normal_points(num_samples, mean.shape[-1], mean.dtype.as_numpy_dtype)
        members = _conditional(model.likelihood, mean + tf.sqrt(variance) * points[:, None, :])
        probabilities = probabilities_given(model.likelihood, mean, variance, num_samples)
        return probabilities, entr(members.numpy()).sum(axis=-1).mean(axis=0)

    return _entropies(*by_blocks(predict, inputs("X", X), size=BLOCK))


@functools.singledispatch
def probabilities_given(
    likelihood: Likelihood, mean: tf.Tensor, variance: tf.Tensor, num_samples: int = 512
) -> tf.Tensor:
    """Return E p(y|f) of each class, with independent f of these marginals: [N, J].

    Under `Softmax` it is an average over points, of which some are in memory at once; the rule of
    integration is the likelihood's elsewhere. No likelihood of classes depends on X.

    :param likelihood: p(y | f).
    :param mean: the mean of f, [N, J], or [N, 1] for two classes.
    :param variance: the variance of f, of the same shape.
    :param num_samples: the number of points.
    """
    p = _both_classes(likelihood.predict_mean_and_var(mean, mean, variance)[0])
    return p / tf.reduce_sum(p, axis=-1, keepdims=True)  # quadrature is not exact


@probabilities_given.register
def _(
    likelihood: Softmax, mean: tf.Tensor, variance: tf.Tensor, num_samples: int = 512
) -> tf.Tensor:
    J, deviation = mean.shape[-1], tf.sqrt(variance)
    points = normal_points(num_samples, J, mean.dtype.as_numpy_dtype)
    at_once = math.gcd(len(points), AT_ONCE)

    @tf.autograph.experimental.do_not_convert
    def add(total: tf.Tensor, some: tf.Tensor) -> tf.Tensor:
        return total + tf.reduce_sum(_conditional(likelihood, mean + deviation * some), axis=0)

    pieces = tf.constant(points.reshape(-1, at_once, 1, J))
    total = tf.foldl(add, pieces, initializer=tf.zeros_like(mean))
    return in_order_of(mean, variance, total / len(points))


@functools.singledispatch
def moments_of_y(
    likelihood: Likelihood, X: TensorType, mean: tf.Tensor, variance: tf.Tensor
) -> MeanAndVariance:
    """Return mean and variance of y, [N, P] each; of classes probabilities p and p(1 - p).

    :param likelihood: p(y | f).
    :param X: the inputs.
    :param mean: the mean of f, [N, J].
    :param variance: the variance of f, [N, J].
    """
    found, of_y = likelihood.predict_mean_and_var(X, mean, variance)
    return found, of_y


@moments_of_y.register
def _(likelihood: Softmax, X: TensorType, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
    p = probabilities_given(likelihood, mean, variance)
    return p, p * (1.0 - p)


def _marginals(model: Any, X: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance of f at rows."""
    mean, variance = model.predict_f(X)
    if mean.shape.rank != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; it must be [N, D], rows of inputs.")
    return mean, variance


def _entropies(probabilities: AnyNDArray, aleatoric: AnyNDArray) -> Entropies:
    total = entr(probabilities).sum(axis=-1)
    # The two may come from different rules of integration.
    return Entropies(total, aleatoric, np.maximum(total - aleatoric, 0.0))


def is_of_classes(model: Any) -> bool:
    """Return True if y is one of several classes, and not a label of each latent function."""
    likelihood, J = model.likelihood, num_classes(model.likelihood)
    if likelihood.latent_dim is None:  # as of `Bernoulli`, which is one for each label
        return J is not None and getattr(model, "num_latent_gps", 1) == 1
    return bool(likelihood.latent_dim == J)


def require_classes(model: Any) -> None:
    """Raise unless y is one of several classes."""
    if not is_of_classes(model):
        raise TypeError(
            f"the model's likelihood is {type(model.likelihood).__name__}; probabilities of "
            "classes need a Bernoulli with one latent function, a MultiClass or a Softmax."
        )


def in_order_of(mean: TensorType, variance: TensorType, probabilities: TensorType) -> tf.Tensor:
    """Return estimates of E softmax(f) in the order of the means, where that is theirs: [N, J].

    With one variance for all classes m_i ≥ m_j implies E p_i ≥ E p_j: exchanging the noise of the
    two leaves its law as it is, and p_i - p_j summed over the two cases is not negative. Samples
    might change the order of classes that are nearly equal.
    """
    ranks = tf.argsort(tf.argsort(mean, direction="DESCENDING", stable=True), stable=True)
    ordered = tf.gather(
        tf.sort(probabilities, direction="DESCENDING"), ranks, axis=-1, batch_dims=1
    )
    alike = tf.reduce_all(tf.equal(variance, variance[..., :1]), axis=-1, keepdims=True)
    return tf.where(alike, ordered, probabilities)


def _conditional(likelihood: Likelihood, f: tf.Tensor) -> tf.Tensor:
    """Return p(y|f) of each class: [S, N, J]."""
    rows = tf.reshape(f, [-1, f.shape[-1]])
    return _both_classes(tf.reshape(likelihood.conditional_mean(rows, rows), tf.shape(f)))


def _both_classes(p: tf.Tensor) -> tf.Tensor:
    """Return the probabilities of both classes, given that of the second: [..., J]."""
    return tf.concat([1.0 - p, p], axis=-1) if p.shape[-1] == 1 else p

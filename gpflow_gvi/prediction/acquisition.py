"""Where to observe next: what an observation at each candidate is worth, larger being better.

For learning, by the variance of f or by the information that an observation has of f; for finding
the minimum of f, by its improvement. The functions of marginals N(m, s²) of f are the mathematics;
`acquire` applies any of them, by name, to a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, TensorType
from gpflow.likelihoods import Gaussian, Likelihood

from .._core import checks, feature_names, labels
from .._core.data import inputs
from .._core.row_blocks import by_blocks
from ..errors import short_repr
from .class_probabilities import entropies
from .predictive_law import NUM_POINTS, PredictiveLaw, predictive_law

Kind = Literal[
    "variance",
    "bald",
    "expected_improvement",
    "probability_of_improvement",
    "upper_confidence_bound",
    "thompson",
]

NUM_VALUES = 200
"""The number of values of y for the information of an observation without a closed form."""

MAX_SHARE = 0.02
"""The number of neighbours for which a whole number stands is at most this share of it."""

LIKELY = 4.0
"""The distance of f from its mean, in standard deviations, that observations may reveal."""

MAX_REFINEMENT = 16
"""The maximal number of points of f in the place of one."""

TAIL = 1e-8
"""The probability of y on either side of them."""


@check_shapes("mean: [n...]", "variance: [n...]", "return: [n...]")
def expected_improvement(mean: TensorType, variance: TensorType, best: TensorType) -> tf.Tensor:
    """Return E[max(η - f, 0)] = (η - m) Φ(z) + s φ(z) with z = (η - m) / s.

    Jones, Schonlau and Welch (1998), "Efficient global optimization", eq. 15.

    :param best: η, the smallest value that is known.
    """
    normal = tfp.distributions.Normal(mean, tf.sqrt(variance))
    return (best - mean) * normal.cdf(best) + variance * normal.prob(best)


@check_shapes("mean: [n...]", "variance: [n...]", "return: [n...]")
def probability_of_improvement(
    mean: TensorType, variance: TensorType, best: TensorType
) -> tf.Tensor:
    """Return P[f < η] = Φ((η - m) / s). Kushner (1964).

    :param best: η, the smallest value that is known.
    """
    return tfp.distributions.Normal(mean, tf.sqrt(variance)).cdf(best)


@check_shapes("mean: [n...]", "variance: [n...]", "return: [n...]")
def upper_confidence_bound(mean: TensorType, variance: TensorType, beta: float = 2.0) -> tf.Tensor:
    """Return β s - m, how far below zero f may well be.

    Srinivas, Krause, Kakade and Seeger (2010), "Gaussian process optimization in the bandit
    setting", for -f.

    :param beta: β.
    """
    return beta * tf.sqrt(variance) - mean


def thompson(model: Any, X: InputData, seed: int = 0) -> AnyNDArray:
    """Return minus a joint draw of f at all candidates, [N, J], in O(N³) time.

    Thompson (1933), "On the likelihood that one unknown probability exceeds another".
    """
    mean, covariance = (np.asarray(part) for part in model.predict_f(X, full_cov=True))
    rng = np.random.default_rng(seed)
    draws = [
        rng.multivariate_normal(m, S, method="eigh")
        for m, S in zip(mean.T, covariance, strict=True)
    ]
    return -np.stack(draws, axis=1)


def information(model: Any, X: InputData) -> AnyNDArray:
    """Return the mutual information of y and f at each row, in nats: [N].

    Houlsby, Huszár, Ghahramani and Lengyel (2011), "Bayesian active learning for classification and
    preference learning" (BALD). Under Gaussian noise it is Σ_j ½ log(1 + s_j²/σ_j²); of classes the
    epistemic entropy; otherwise the average of KL[p(f | y), p(f)] over y, by a sum or quadrature.

    :param model: a model with `predict_f` and a likelihood.
    :param X: the inputs.
    """
    feature_names.require_of(model, X)
    likelihood = model.likelihood
    if labels.num_classes(likelihood) is not None:
        return entropies(model, X).epistemic

    def of_rows(X: TensorType) -> tuple[tf.Tensor]:
        mean, variance = model.predict_f(X)
        return (_information(likelihood, X, mean, variance),)

    (gain,) = by_blocks(of_rows, inputs("X", X), size=1000)
    return gain


def _information(
    likelihood: Likelihood, X: TensorType, mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    if isinstance(likelihood, Gaussian):
        ratio = variance / likelihood.conditional_variance(X, mean)
        return 0.5 * tf.reduce_sum(tf.math.log1p(ratio), axis=-1)
    law = predictive_law(likelihood, X, mean, variance)
    finer = _refinement(law)
    if finer > 1:
        num_points = (NUM_POINTS - 1) * finer + 1
        law = predictive_law(likelihood, X, mean, variance, num_points)
    of_f = tf.math.log(law.weights)[:, None, None]
    total = probability = tf.zeros([], mean.dtype)
    for logs in _log_probabilities(law):
        of_y = tf.reduce_logsumexp(logs + of_f, axis=0)
        ratio = logs - of_y  # log p(f | y) / p(f)
        gain = tf.reduce_sum(tf.math.multiply_no_nan(ratio, tf.exp(of_f + ratio)), axis=0)
        weight = tf.exp(of_y)
        total, probability = total + weight * gain, probability + weight
    return tf.reduce_sum(total / probability, axis=-1)


def _refinement(law: PredictiveLaw) -> int:
    """Return the number of points of f that replace one of an even grid, for y to resolve them."""
    try:
        mean, sd = law.given_f.mean(), law.given_f.stddev()
    except NotImplementedError:  # levels, which tell little of f
        return 1
    if law.z is None:
        return 1
    change = tf.boolean_mask(tf.abs(mean[1:] - mean[:-1]) / sd[1:], tf.abs(law.z[1:]) < LIKELY)
    return int(np.clip(np.ceil(np.max(change)), 1, MAX_REFINEMENT))


def _log_probabilities(law: PredictiveLaw) -> Iterator[tf.Tensor]:
    """Yield the log probabilities, given f, of the parts of all values of y: [S, N, P].

    A whole number is a part, and of thousands the middle one stands for some; other values are
    parts of equal width in a coordinate in which the density has no end and light tails.
    """
    dtype = law.weights.dtype
    numbers = np.finfo(dtype.as_numpy_dtype)
    tail = max(TAIL, 100.0 * float(numbers.eps))
    lower, upper = (law.quantile([[level]]) for level in (tail, 1.0 - tail))
    if law.values.whole:
        largest = (upper - lower) / NUM_VALUES
        while tf.reduce_any(lower <= upper):
            length = tf.maximum(tf.floor(tf.minimum(MAX_SHARE * lower, largest)), 1.0)
            middle = tf.minimum(lower + 0.5 * (length - 1.0), upper)
            share = tf.where(lower <= upper, length, tf.cast(numbers.tiny, dtype))
            yield law.given_f.log_prob(middle) + tf.math.log(share)
            lower += length
        return
    least = law.values.least + numbers.tiny
    most = law.values.most * (1.0 - numbers.eps)  # fractions can round to 1

    def inside(Y: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(Y, tf.cast(least, dtype), tf.cast(most, dtype))

    lower, upper = inside(lower), inside(upper)
    # Much of the law of fractions or small amounts may be closer to an end than any number is.
    for outside in (law.given_f.cdf(lower), law.given_f.survival_function(upper)):
        yield tf.math.log(tf.maximum(outside, tf.cast(numbers.tiny, dtype)))
    bijector = _unbounded(law, inside)
    first, last = bijector.inverse(lower), bijector.inverse(upper)
    step = (last - first) / (NUM_VALUES - 1)
    for k in range(NUM_VALUES):
        coordinate = first + k * step
        share = step if 0 < k < NUM_VALUES - 1 else 0.5 * step
        slope = bijector.forward_log_det_jacobian(coordinate, event_ndims=0)
        at_f = law.given_f.log_prob(inside(bijector.forward(coordinate)))
        yield at_f + slope + tf.math.log(share)


def _unbounded(
    law: PredictiveLaw, inside: Callable[[tf.Tensor], tf.Tensor]
) -> tfp.bijectors.Bijector:
    """Return the bijector from such a coordinate to y: close in its middle half, wide in tails."""
    tfb = tfp.bijectors
    to_y = tfb.Identity()
    if np.isfinite(law.values.most):
        to_y = tfb.Sigmoid()  # of fractions
    elif np.isfinite(law.values.least):
        to_y = tfb.Exp()
    quartiles = (inside(law.quantile([[level]])) for level in (0.25, 0.5, 0.75))
    lower, middle, upper = (to_y.inverse(each) for each in quartiles)
    return tfb.Chain([to_y, tfb.Shift(middle), tfb.Scale(upper - lower), tfb.Sinh()])


def acquire(
    model: Any,
    candidates: InputData,
    kind: Kind,
    *,
    best: float | None = None,
    beta: float = 2.0,
    seed: int = 0,
) -> AnyNDArray:
    """Return the value of an observation at each candidate: [N]. The largest is the best.

    :param model: a model with `predict_f` and, for "bald", a likelihood.
    :param candidates: the inputs, [N, D].
    :param kind: "variance" of f, summed over outputs, or "bald", to learn; for the minimum of f,
        which has one output: "expected_improvement", "probability_of_improvement",
        "upper_confidence_bound" (of the improvement) or "thompson".
    :param best: η, for the improvements; by default the smallest mean at a candidate.
    :param beta: β, for the confidence bound.
    :param seed: the seed of the draw of "thompson".
    """
    checks.one_of("kind", kind, get_args(Kind))
    feature_names.require_of(model, candidates)
    X = inputs("candidates", candidates)
    if kind == "bald":
        return information(model, X)
    if kind == "thompson":
        return _of_one_output(thompson(model, X, seed))
    mean, variance = by_blocks(model.predict_f, X)
    if kind == "variance":
        return np.sum(variance, axis=-1)
    mean = _of_one_output(mean)
    # Where f is known, its variance may round to zero.
    variance = np.maximum(variance[:, 0], np.finfo(variance.dtype).tiny)
    if kind == "upper_confidence_bound":
        checks.positive_number("beta", beta, or_zero=True)
        return np.asarray(upper_confidence_bound(mean, variance, beta))
    of_kind = expected_improvement if kind == "expected_improvement" else probability_of_improvement
    least = np.asarray(np.min(mean) if best is None else best)
    if least.shape or least.dtype.kind not in "iuf" or not np.isfinite(least):
        raise ValueError(f"best is {short_repr(best)}; it must be one finite number.")
    least = least.astype(mean.dtype)
    return np.asarray(of_kind(mean, variance, least))


def _of_one_output(values: AnyNDArray) -> AnyNDArray:
    if values.shape[1] != 1:
        raise ValueError(
            f"the model has {values.shape[1]} outputs, but an objective has one. Take 'variance' "
            "or 'bald', or learn from one column."
        )
    return values[:, 0]

"""Where to observe next: what an observation at each candidate is worth, larger being better.

For learning, by the variance of f or by the information that an observation has of f; for finding
the minimum of f, by its improvement. The functions of marginals N(m, s²) of f are the mathematics;
`acquire` applies any of them, by name, to a model.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, TensorType
from gpflow.likelihoods import Gaussian

from .._core import checks, feature_names, labels
from .._core.data import inputs
from .._core.row_blocks import by_blocks
from ..errors import short_repr
from .class_probabilities import entropies

Kind = Literal[
    "variance",
    "bald",
    "expected_improvement",
    "probability_of_improvement",
    "upper_confidence_bound",
    "thompson",
]


@check_shapes("mean: [n...]", "variance: [n...]", "return: [n...]")
def expected_improvement(mean: TensorType, variance: TensorType, best: TensorType) -> tf.Tensor:
    """Return E[max(η - f, 0)] = (η - m) Φ(z) + s φ(z), z = (η - m) / s, η the best value yet.

    Jones, Schonlau and Welch (1998), "Efficient global optimization", eq. 15.
    """
    normal = tfp.distributions.Normal(mean, tf.sqrt(variance))
    return (best - mean) * normal.cdf(best) + variance * normal.prob(best)


@check_shapes("mean: [n...]", "variance: [n...]", "return: [n...]")
def probability_of_improvement(
    mean: TensorType, variance: TensorType, best: TensorType
) -> tf.Tensor:
    """Return P[f < η] = Φ((η - m) / s), η the best value yet. Kushner (1964)."""
    return tfp.distributions.Normal(mean, tf.sqrt(variance)).cdf(best)


@check_shapes("mean: [n...]", "variance: [n...]", "return: [n...]")
def upper_confidence_bound(mean: TensorType, variance: TensorType, beta: float = 2.0) -> tf.Tensor:
    """Return β s - m, how far below zero f may well be.

    Srinivas, Krause, Kakade and Seeger (2010), "Gaussian process optimization in the bandit
    setting", for -f.
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


def _information(model: Any, X: InputData) -> AnyNDArray:
    """Return the mutual information of y and f at each row, in nats: [N].

    Houlsby, Huszár, Ghahramani and Lengyel (2011), "Bayesian active learning for classification and
    preference learning" (BALD). Under Gaussian noise it is Σ_j ½ log(1 + s_j²/σ_j²); of classes the
    epistemic entropy.
    """
    likelihood = model.likelihood
    if labels.num_classes(likelihood) is not None:
        return entropies(model, X).epistemic
    if not isinstance(likelihood, Gaussian):
        raise TypeError(
            f"the model's likelihood is {type(likelihood).__name__}, under which the information "
            "of y has no closed form; it has under Gaussian noise and of classes. Take 'variance'."
        )

    def of_rows(X: TensorType) -> tuple[tf.Tensor]:
        mean, variance = model.predict_f(X)
        ratio = variance / likelihood.conditional_variance(X, mean)
        return (0.5 * tf.reduce_sum(tf.math.log1p(ratio), axis=-1),)

    (gain,) = by_blocks(of_rows, X, size=1000)
    return gain


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

    :param model: a model with `predict_f` and, for "bald", a likelihood of Gaussian noise or of
        classes.
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
        return _information(model, X)
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

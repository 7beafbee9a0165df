"""How far the training rows of a network reach, and what is said of the inputs beyond.

What a network returns grows about linearly with its inputs, and its confidence along with it (Hein,
Andriushchenko and Bitterwolf 2019, "Why ReLU networks yield high-confidence predictions far away
from the training data"). So beyond the reach of the training rows the standard deviation of f grows
with the square of the distance d from their mean, by the factor

    s(x) = max (1, d²(x) / max_n d²(x_n)),

and f is lost in it (Kristiadi, Hein and Hennig 2021, "An infinite-feature extension for Bayesian
ReLU nets that fixes their asymptotic overconfidence", where the variance grows with the cube).
Within their reach nothing changes.

Inputs of another kind need not be far away: they may have features that no class has. Around a
classifier the standard deviation of f is s w, with

    w²(x) = (1 + t²(x)) / 2,    t²(x) = min_c (φ(x) - μ_c)ᵀ Σ⁻¹ (φ(x) - μ_c)

in units in which t² is one for a training row, on average. t is the distance of the last layer's
features φ from the nearest class, by the covariance Σ that they have within classes (Lee, Lee, Lee
and Shin 2018, "A simple unified framework for detecting out-of-distribution samples and adversarial
attacks"), and w² what Student's t, of as many degrees of freedom as there are features, makes of
variances at this distance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtri, roots_hermitenorm

from ..._core.row_blocks import by_blocks
from ..rows.scaling import Scaling

NUM_NODES = 100
"""Nodes of the Gauss-Hermite rule for the largest of several normal variables."""

BLOCK = 500
"""The number of inputs at a time."""


def reach_of(X: AnyNDArray, floats: Callable[[AnyNDArray], AnyNDArray]) -> Scaling:
    """Return units of inputs as rows in which the farthest is at distance one from their mean.

    Columns of a table have a unit each; pixels, some of which hardly vary, have one.

    :param floats: what makes numbers of the training inputs X, [N, D...].
    """

    def flat(block: AnyNDArray) -> AnyNDArray:
        return floats(block).reshape(len(block), -1)

    def average(function: Callable[[AnyNDArray], AnyNDArray]) -> AnyNDArray:
        (sums,) = by_blocks(lambda block: (function(flat(block)).sum(0)[None],), X, size=BLOCK)
        return np.asarray(sums.sum(axis=0) / len(X))

    mean = average(lambda rows: rows)
    variance = average(lambda rows: np.square(rows - mean))
    scale = Scaling.of_moments(mean, np.sqrt(variance)).scale
    if X.ndim > 2:
        scale = np.full_like(scale, np.sqrt(variance.mean()) or 1.0)
    (distances,) = by_blocks(
        lambda block: (np.linalg.norm((flat(block) - mean) / scale, axis=1),), X, size=BLOCK
    )
    return Scaling(mean, scale * (distances.max() or 1.0))


def beyond(reach: Scaling, X: tf.Tensor) -> tf.Tensor:
    """Return s(x) of inputs as rows: [N, 1]."""
    squares = tf.reduce_sum(tf.square(reach.scaled(X)), axis=-1, keepdims=True)
    return 1.0 + tf.nn.relu(squares - 1.0)


class Classes(NamedTuple):
    """The features of each class as normal variables of one covariance."""

    means: AnyNDArray
    """[K, F], in coordinates in which the covariance within a class is the identity."""
    root: AnyNDArray
    """What features are multiplied by for these coordinates: [F, F]."""
    direction: AnyNDArray
    """The mean of the directions of all features, as unit vectors: [F]."""

    @classmethod
    def of(cls, features: AnyNDArray, labels: AnyNDArray) -> Classes:
        """Return the classes of training rows, their distances one on average.

        The covariance is that of Ledoit and Wolf (2004), "A well-conditioned estimator for
        large-dimensional covariance matrices".
        """
        from sklearn.covariance import ledoit_wolf

        present, which = np.unique(labels, return_inverse=True)
        means = np.stack([features[which == k].mean(axis=0) for k in range(len(present))])
        covariance, _ = ledoit_wolf(features - means[which], assume_centered=True)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors / np.sqrt(np.maximum(values, values[-1] * np.finfo(values.dtype).eps))
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        direction = np.mean(features / np.where(lengths > 0.0, lengths, 1.0), axis=0)
        classes = cls(means @ root, root, direction)
        unit = np.sqrt(np.mean(np.square(classes.distance(features)))) or 1.0
        return cls(classes.means / unit, root / unit, direction)

    def distance(self, features: TensorType) -> tf.Tensor:
        """Return t(x) of features [N, F]: [N, 1]."""
        rows = tf.matmul(features, self.root)
        return tf.reduce_min([tf.norm(rows - mean, axis=1) for mean in self.means], axis=0)[:, None]


def leaning(counts: AnyNDArray, num_outputs: int) -> AnyNDArray:
    """Return c [J] such that noise around it makes each class as frequent as it is in the data.

    P(c_k + z_k is the largest) is the frequency of class k for z_j ~ N(0, 1), and P(c + z > 0) that
    of the second class where there is one output. c minimises E max_j (c_j + z_j) - Σ_j c_j p_j,
    the gradient of which is the difference of the two (McFadden 1981, "Econometric models of
    probabilistic choice", of a surplus function).

    :param counts: the number of examples of each class, [K]; to each one is added, by Laplace's
        rule of succession.
    """
    p = (counts + 1.0) / np.sum(counts + 1.0)
    if num_outputs == 1:
        return np.asarray(ndtri(p[1:]))
    z, weights = roots_hermitenorm(NUM_NODES)
    weights = weights[:, None] / weights.sum()

    def surplus(c: AnyNDArray) -> tuple[float, AnyNDArray]:
        largest = c + z[:, None]  # [S, K], at the nodes of each z_j
        others = log_ndtr(largest[:, :, None] - c).sum(axis=-1) - log_ndtr(z)[:, None]
        chances = weights * np.exp(others)
        return np.sum(chances * largest) - c @ p, chances.sum(axis=0) - p

    c = minimize(surplus, np.log(p) - np.mean(np.log(p)), jac=True, method="BFGS").x
    return np.asarray(c - c.mean())

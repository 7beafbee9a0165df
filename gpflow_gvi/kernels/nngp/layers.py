"""The layers of an infinitely wide network, each as what it does to covariances.

As the width grows, the units of a layer (or the channels of a convolution) become independent
Gaussian processes given its inputs, so that a layer is known by a map from the covariances of its
inputs to those of its outputs. Lee et al. (2018), "Deep neural networks as Gaussian processes",
section 2; for images Novak et al. (2019), "Bayesian deep convolutional networks with many channels
are Gaussian processes", section 2, and Garriga-Alonso et al. (2019).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module
from gpflow.utilities import positive

from ..._core import checks
from .pairs import Offsets, Pairs, Shape


class Covariances(NamedTuple):
    """What a layer receives about its inputs, which are images or vectors."""

    K: tf.Tensor
    """Between inputs of N examples and of N2 others: [N, H, W, ..., N2] or [N, N2]."""
    first: tf.Tensor | None = None
    """The variances of the N, for an activation only: [N, H, W, 1, 1, 1] or [N, 1]."""
    second: tf.Tensor | None = None
    """The variances of the N2, for an activation only: like K but with N = 1, or [1, N2]."""


class Layer(Module, abc.ABC):
    """A map from covariances to covariances.

    A layer does not read its parameters while it works: their values are handed to `propagate`, so
    that a loop over parts of a Gram matrix can be differentiated part by part.
    """

    @property
    def parameters_in_use(self) -> tuple[Parameter, ...]:
        """The parameters whose values `propagate` takes, in their order."""
        return ()

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of the outputs; raise ValueError if the inputs do not suit."""
        return shape

    def input_offsets(self, offsets: Offsets) -> Offsets | None:
        """Return the offsets needed of the inputs for these of the outputs; None for all pairs."""
        return offsets

    @abc.abstractmethod
    def propagate(self, given: Covariances, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return the covariances of the outputs.

        :param given: the covariances of the inputs.
        :param pairs: the pairs of outputs whose covariances are wanted.
        :param values: the values of `parameters_in_use`.
        """


class Affine(Layer):
    """Weights and biases: σ_b² + σ_w² times an average of the covariances of the inputs.

    :param weight_variance: σ_w², positive. A weight has the variance σ_w² / fan-in.
    :param bias_variance: σ_b². Zero means that there is no bias: `bias_variance` is then None, and
        there is nothing to train. Otherwise it is a positive parameter.
    """

    def __init__(self, weight_variance: Any = 1.0, bias_variance: Any = 0.0) -> None:
        super().__init__()
        checks.positive("weight_variance", weight_variance)
        checks.positive("bias_variance", bias_variance, or_zero=True)
        self.weight_variance = _positive_parameter("weight_variance", weight_variance)
        self.bias_variance: Parameter | None = None
        if isinstance(bias_variance, Parameter) or np.any(bias_variance):
            self.bias_variance = _positive_parameter("bias_variance", bias_variance)

    @property
    def parameters_in_use(self) -> tuple[Parameter, ...]:
        """σ_w², and σ_b² if there is a bias."""
        if self.bias_variance is None:
            return (self.weight_variance,)
        return (self.weight_variance, self.bias_variance)


def _positive_parameter(name: str, value: Any) -> Parameter:
    if isinstance(value, Parameter):
        return value
    if np.ndim(value) != 0:
        raise ValueError(
            f"{name} has shape {np.shape(value)}; it must be a number, one for the whole layer."
        )
    return Parameter(value, transform=positive())


def affine(K: tf.Tensor, weight_variance: tf.Tensor, *bias_variance: tf.Tensor) -> tf.Tensor:
    """Return σ_b² + σ_w² K."""
    return sum(bias_variance, weight_variance * K)


class Dense(Affine):
    """A fully connected layer on vectors: σ_b² + σ_w² K (Lee et al. 2018, section 2.3).

    In front of the first one stands K = x·x'/D.
    """

    def output_shape(self, shape: Shape) -> Shape:
        """Return that the outputs are vectors, as the inputs must be."""
        if shape is not None:
            raise ValueError(
                "it takes vectors, but gets images. Put Flatten() or GlobalAveragePooling2D() "
                "before it, or use Conv2D(1) for the same weights at every pixel."
            )
        return shape

    def propagate(self, given: Covariances, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return σ_b² + σ_w² K."""
        return affine(given.K, *values)


class Activation(Layer):
    """A function φ of each unit."""

    @abc.abstractmethod
    def expectation(self, K: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Return E[φ(u) φ(v)] for (u, v) ~ N(0, [[first, K], [K, second]])."""

    def propagate(self, given: Covariances, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return E[φ(u) φ(v)] of each pair."""
        return self.expectation(*given)


class ReLU(Activation):
    """max(0, u): with r = √(K11 K22) and cos θ = K12/r, E = r (sin θ + (π - θ) cos θ) / 2π.

    It is half the arc-cosine kernel of order 1. Cho and Saul (2009), eqs. 3 and 6.
    """

    def expectation(self, K: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Return E[max(0, u) max(0, v)]."""
        return _expected_relu(K, first * second)


@tf.custom_gradient
def _expected_relu(
    K: tf.Tensor, q: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Return (r sin θ + K (π - θ)) / 2π for q = r² and K = r cos θ.

    Its derivatives are (π - θ) / 2π in K and sin θ / 4πr in q: finite wherever r is not zero, while
    those of the arc cosine that it is made of are not.
    """
    tiny = np.finfo(K.dtype.as_numpy_dtype).tiny
    r_sine = tf.sqrt(tf.maximum(q - tf.square(K), tiny))
    angle = tf.atan2(r_sine, -K)  # π - θ; several times faster than an arc cosine

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        upstream = upstream / (2.0 * np.pi)
        return upstream * angle, upstream * r_sine / (2.0 * tf.maximum(q, tiny))

    return (r_sine + K * angle) / (2.0 * np.pi), gradient


class Erf(Activation):
    """The error function, in the place of tanh: E = (2/π) asin( 2K12 / √((1+2K11)(1+2K22)) ).

    Williams (1997), "Computing with infinite networks"; Rasmussen and Williams (2006), eq. 4.29.
    It is bounded, so a network that ends with it has k(x, x') < 1 whatever its parameters: let a
    `Dense` follow it.
    """

    def expectation(self, K: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Return E[erf(u) erf(v)]."""
        r = tf.sqrt(1.0 + 2.0 * first) * tf.sqrt(1.0 + 2.0 * second)
        # (1+2K11)(1+2K22) - 4K12² is at least one, but rounds to less where K is large.
        adjacent = tf.sqrt(tf.maximum((r - 2.0 * K) * (r + 2.0 * K), 1.0))
        return (2.0 / np.pi) * tf.atan2(2.0 * K, adjacent)

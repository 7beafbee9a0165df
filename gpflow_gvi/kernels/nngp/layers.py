"""The layers of an infinitely wide network, each as what it does to covariances.

As the width grows, the units of a layer (or the channels of a convolution) become independent
Gaussian processes given its inputs, so that a layer is known by a map from the covariances of its
inputs to those of its outputs. Lee et al. (2018), "Deep neural networks as Gaussian processes",
section 2; for images Novak et al. (2019), "Bayesian deep convolutional networks with many channels
are Gaussian processes", section 2, with pooling in section 3, and Garriga-Alonso et al. (2019). A
sequence of T tokens with C features is an image of T × 1 pixels.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module
from gpflow.utilities import positive

from ..._core import checks
from .pairs import Offsets, Pairs, Shape, Size, Two, window_offsets


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
    def propagate(self, K: tf.Tensor, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return the covariances of the outputs.

        :param K: the covariances between inputs of N examples and of N2 others, [N, N2] of vectors
            or [N, H, W, ..., N2] of images.
        :param pairs: the pairs of outputs whose covariances are wanted.
        :param values: the values of `parameters_in_use`; for an activation the variances of the N
            inputs, [N, 1] or [N, H, W, 1, 1, 1], and of the N2, [1, N2] or like K with N = 1.
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

    def propagate(self, K: tf.Tensor, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return σ_b² + σ_w² K."""
        return affine(K, *values)


class Activation(Layer):
    """A function φ of each unit."""

    @abc.abstractmethod
    def expectation(self, K: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Return E[φ(u) φ(v)] for (u, v) ~ N(0, [[first, K], [K, second]])."""

    def propagate(self, K: tf.Tensor, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return E[φ(u) φ(v)] of each pair."""
        return self.expectation(K, *values)


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


class Conv2D(Affine):
    """A convolution: σ_b² + σ_w² times the average over the patch (Novak et al. 2019, section 2.2).

    The covariance between output pixels p and p' is the average, over the positions in the filter,
    of those between the inputs under it. Pixels that `padding="same"` adds are zeros and enter the
    average, so the variance is smaller at the border. In front of the first layer stands
    K = x_p·x'_p'/C, over the C channels.

    :param kernel_size: height and width of the filter, or one number for both.
    :param strides: steps along height and width, or one number for both.
    :param padding: "same" or "valid", as in Keras.
    """

    def __init__(
        self,
        kernel_size: int | Two,
        *,
        strides: int | Two = 1,
        padding: str = "same",
        weight_variance: Any = 1.0,
        bias_variance: Any = 0.0,
    ) -> None:
        super().__init__(weight_variance, bias_variance)
        self.kernel_size = _two("kernel_size", kernel_size)
        self.strides = _two("strides", strides)
        if padding not in ("same", "valid"):
            raise ValueError(f'padding is {padding!r}; it must be "same" or "valid".')
        self.padding = padding

    def output_shape(self, shape: Shape) -> Shape:
        """Return the height and width of the outputs."""
        if self.padding == "valid":
            return _windows(shape, self.kernel_size, self.strides)
        sizes = zip(_image(shape), self.strides, strict=True)
        height, width = (None if size is None else -(-size // stride) for size, stride in sizes)
        return height, width

    def input_offsets(self, offsets: Offsets) -> Offsets:
        """Return the offsets times the strides."""
        return window_offsets(offsets, (1, 1), self.strides)

    def propagate(self, K: tf.Tensor, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return σ_b² + σ_w² · average over the patch."""
        padding: list[Two] = [(0, 0), (0, 0)]
        if self.padding == "same":
            sizes = zip(K.shape[1:3], self.kernel_size, self.strides, strict=True)
            padding = [_same_padding(*size) for size in sizes]
        K = pairs.over_patches(K, self.kernel_size, self.strides, padding)
        return pairs.inside(affine(K, *values))


class _ToVectors(Layer):
    """Images to vectors: the average of the covariances of some pairs of pixels."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return that the outputs are vectors."""
        _image(shape)
        return None

    def propagate(self, K: tf.Tensor, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return the mean over the pairs."""
        return tf.reduce_mean(K, axis=[1, 2, 3, 4])


class Flatten(_ToVectors):
    """Images to vectors: the average, over the pixels, of the covariances of the same pixel."""

    def input_offsets(self, offsets: Offsets) -> Offsets:
        """Return that a pixel's covariance with itself is enough."""
        return (0,), (0,)


class GlobalAveragePooling2D(_ToVectors):
    """The mean over pixels: the average of the covariances of all pairs of pixels."""

    def input_offsets(self, offsets: Offsets) -> None:
        """Return that every pair of pixels matters."""
        return None


class AveragePooling2D(Layer):
    """The means over windows: averages over the pairs of pixels of two windows.

    :param pool_size: height and width of the window, or one number for both.
    :param strides: steps along height and width; those of the window if not given. Windows that
        do not fit into the image are dropped, as in Keras with `padding="valid"`.
    """

    def __init__(self, pool_size: int | Two, strides: int | Two | None = None) -> None:
        super().__init__()
        self.pool_size = _two("pool_size", pool_size)
        self.strides = self.pool_size if strides is None else _two("strides", strides)

    def output_shape(self, shape: Shape) -> Shape:
        """Return the number of windows along height and width."""
        return _windows(shape, self.pool_size, self.strides)

    def input_offsets(self, offsets: Offsets) -> Offsets:
        """Return the offsets between the pixels of windows that are these offsets apart."""
        return window_offsets(offsets, self.pool_size, self.strides)

    def propagate(self, K: tf.Tensor, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return the averages over pairs of pixels."""
        return pairs.inside(pairs.over_windows(K, self.pool_size, self.strides))


def _two(name: str, value: int | Sequence[int]) -> Two:
    """Return two whole numbers, the same twice if only one is given."""
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"{name} is {value!r}; give one number, or one for each of two axes.")
    for number in pair:
        checks.count(name, number)
    return int(pair[0]), int(pair[1])


def _image(shape: Shape) -> tuple[Size, Size]:
    if shape is None:
        raise ValueError(
            "it takes images, but gets vectors. Take it out, or put it before Flatten() and "
            "GlobalAveragePooling2D()."
        )
    return shape


def _windows(shape: Shape, window: Two, strides: Two) -> Shape:
    """Return the numbers of windows that fit along height and width."""
    image = _image(shape)
    numbers = [
        None if size is None else (size - length) // stride + 1
        for size, length, stride in zip(image, window, strides, strict=True)
    ]
    if any(number is not None and number < 1 for number in numbers):
        raise ValueError(
            f"its window of {window[0]} x {window[1]} pixels is larger than its input of "
            f"{image[0]} x {image[1]}. Use a smaller window, or less pooling before it."
        )
    return numbers[0], numbers[1]


def _same_padding(size: int, window: int, stride: int) -> Two:
    """Return the number of zeros before and after that `padding="same"` stands for."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2

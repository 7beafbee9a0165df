"""The layers of an infinitely wide network for images: convolution and pooling.

Their covariances are those of the `PixelPairs` or `AllPixelPairs` of pairs.py. Novak et al. (2019),
"Bayesian deep convolutional networks with many channels are Gaussian processes"; pooling in its
section 3. A sequence of T tokens with C features is an image of T × 1 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..._core import checks
from .layers import Affine, Covariances, Layer, affine
from .pairs import Offsets, Pairs, Shape, Size, Two, window_offsets


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

    def propagate(self, given: Covariances, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return σ_b² + σ_w² · average over the patch."""
        padding: list[Two] = [(0, 0), (0, 0)]
        if self.padding == "same":
            sizes = zip(given.K.shape[1:3], self.kernel_size, self.strides, strict=True)
            padding = [_same_padding(*size) for size in sizes]
        K = pairs.over_patches(given.K, self.kernel_size, self.strides, padding)
        return pairs.inside(affine(K, *values))


class _ToVectors(Layer):
    """Images to vectors: the average of the covariances of some pairs of pixels."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return that the outputs are vectors."""
        _image(shape)
        return None

    def propagate(self, given: Covariances, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return the mean over the pairs."""
        return tf.reduce_mean(given.K, axis=[1, 2, 3, 4])


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

    def propagate(self, given: Covariances, pairs: Pairs, *values: tf.Tensor) -> tf.Tensor:
        """Return the averages over pairs of pixels."""
        return pairs.inside(pairs.over_windows(given.K, self.pool_size, self.strides))


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

"""The squared paper: whose covariances are kept, and how they are laid out in arrays.

For vectors it is the covariance of each pair of examples. For images it would be that of each pair
of their pixels, but few of these matter as a rule: a pair (p, p + d) is kept for the offsets d that
matter at the output. A convolution keeps offsets as they are, so a network that ends in `Flatten`
needs d = 0 alone, and average pooling over k × k windows needs the offsets within a window. Global
pooling needs every pair (p, p'), and these are kept by their two pixels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

Size: TypeAlias = Any
"""An int, or None where it is not known yet."""

Shape: TypeAlias = tuple[Size, Size] | None
"""Height and width of an image; None for a vector."""

Two: TypeAlias = tuple[int, int]
"""A number for the height and one for the width."""

Padding: TypeAlias = Sequence[Two]
"""The numbers of zeros to add before and after the height, and the width."""

Offsets: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The offsets along the height and along the width; every combination of the two is kept."""

Pairs: TypeAlias = Any
"""`VectorPairs`, `PixelPairs` or `AllPixelPairs`."""


class VectorPairs:
    """The pairs of N vectors and N2 others: covariances are [N, N2], variances [N]."""

    number = 0
    """No covariances are needed beyond the Gram matrix itself."""

    def between(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Return x·x'/D: [N, N2]."""
        return tf.matmul(X / _length(X), X2, transpose_b=True)

    def within(self, X: tf.Tensor) -> tf.Tensor:
        """Return x·x/D: [1, N]."""
        return tf.reduce_sum(X / _length(X) * X, axis=-1)[None]

    def variances(self, K: tf.Tensor) -> tf.Tensor:
        """Return the variances [N] of covariances `within`."""
        return K[0]

    def own(self, variances: tf.Tensor) -> tf.Tensor:
        """Return [1, N] of [N]."""
        return variances[None, :]

    def first(self, variances: tf.Tensor) -> tf.Tensor:
        """Return [N, 1] of [N]."""
        return variances[:, None]

    def second(self, variances: tf.Tensor) -> tf.Tensor:
        """Return [1, N2] of [N2]."""
        return variances[None, :]


class _OfImages:
    """What pairs of pixels have in common: variances are [N, H, W], however the pairs are kept."""

    def own(self, variances: tf.Tensor) -> tf.Tensor:
        """Return those of p beside covariances `within`: [1, H, W, 1, 1, N] of [N, H, W]."""
        return tf.transpose(variances, [1, 2, 0])[None, :, :, None, None]

    def first(self, variances: tf.Tensor) -> tf.Tensor:
        """Return those of p: [N, H, W, 1, 1, 1] of [N, H, W]."""
        return variances[..., None, None, None]


@dataclasses.dataclass(frozen=True)
class PixelPairs(_OfImages):
    """The pairs (p, p + d) of pixels in an H × W image, d from A offsets × B offsets.

    Covariances are [N, H, W, B, A, N2], with zeros where p + d is outside of the image. (With B
    before A nothing so large has to be transposed.)
    """

    height: int
    width: int
    offsets: Offsets

    @property
    def number(self) -> int:
        """The number of covariances for each pair of images."""
        return self.height * self.width * len(self.offsets[0]) * len(self.offsets[1])

    def between(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Return x_p·x'_p'/C over the channels: [N, H, W, B, A, N2]."""
        shifted = self.shifted(tf.transpose(X2, [1, 2, 0, 3]))  # [H, W, B, A, N2, C]
        return tf.einsum("nhwc,hwbamc->nhwbam", X / _length(X), shifted)

    def within(self, X: tf.Tensor) -> tf.Tensor:
        """Return x_p·x_p'/C of each image with itself: [1, H, W, B, A, N]."""
        images = tf.transpose(X, [1, 2, 0, 3])  # [H, W, N, C]
        return tf.einsum("hwnc,hwbanc->hwban", images / _length(X), self.shifted(images))[None]

    def variances(self, K: tf.Tensor) -> tf.Tensor:
        """Return the variances [N, H, W] of covariances `within`, those with d = 0."""
        a, b = (offsets.index(0) for offsets in self.offsets)
        return tf.transpose(K[0, :, :, b, a], [2, 0, 1])

    def second(self, variances: tf.Tensor) -> tf.Tensor:
        """Return those of p + d: [1, H, W, B, A, N2] of [N2, H, W]."""
        return self.shifted(tf.transpose(variances, [1, 2, 0]))[None]

    def shifted(self, images: tf.Tensor) -> tf.Tensor:
        """Return the pixels p + d: [H, W, B, A, ...] of [H, W, ...], zero outside."""
        rows, columns = self.offsets
        rest = range(3, images.shape.rank + 1)
        framed = tf.pad(images, [[0, 1], [0, 1]] + [[0, 0]] * (images.shape.rank - 2))
        framed = tf.gather(framed, _shifted_index(self.height, rows), axis=0)  # [H, A, W+1, ...]
        framed = tf.transpose(framed, [0, 2, 1, *rest])
        return tf.gather(framed, _shifted_index(self.width, columns), axis=1)

    def over_patches(self, K: tf.Tensor, size: Two, strides: Two, padding: Padding) -> tf.Tensor:
        """Return averages over patches, through which both pixels of a pair move together."""
        shape = tf.shape(K)
        images = tf.reshape(K, tf.concat([shape[:3], [-1]], axis=0))  # [N, H, W, B·A·N2]
        images = tf.pad(images, [(0, 0), *padding, (0, 0)])
        images = tf.nn.avg_pool2d(images, size, strides, "VALID")
        return tf.reshape(images, tf.concat([tf.shape(images)[:3], shape[3:]], axis=0))

    def over_windows(self, K: tf.Tensor, size: Two, strides: Two) -> tf.Tensor:
        """Return averages over windows, through which each pixel of a pair moves for itself."""
        axes = zip(
            ("nikwbam,kac->niwbcm", "nhikbam,kbc->nhicam"),
            (self.height, self.width),
            self.offsets,
            window_offsets(self.offsets, size, strides),
            size,
            strides,
            strict=True,
        )
        for axis, (sums, number, wanted, given, window, stride) in enumerate(axes, start=1):
            positions = stride * np.arange(number)[:, None] + np.arange(window)  # of each window
            K = tf.gather(K, positions, axis=axis)
            weights = _window_weights(wanted, given, window, stride)
            K = tf.einsum(sums, K, tf.constant(weights, dtype=K.dtype))
        return K

    def inside(self, K: tf.Tensor) -> tf.Tensor:
        """Return K with zeros where p + d is outside of the image."""
        if self.offsets == ((0,), (0,)):
            return K
        rows, columns = self.offsets
        inside = _shifted_index(self.height, rows) < self.height  # [H, A]
        inside2 = _shifted_index(self.width, columns) < self.width  # [W, B]
        inside = tf.constant(inside[:, None, None, :, None], dtype=K.dtype)
        return K * (inside * tf.constant(inside2[:, :, None, None], dtype=K.dtype))


@dataclasses.dataclass(frozen=True)
class AllPixelPairs(_OfImages):
    """All pairs (p, p') of pixels in an H × W image.

    Covariances are [N, H, W, H, W, N2]. By offsets they would be nearly four times as many, most of
    them with a pixel outside of the image.
    """

    height: int
    width: int

    @property
    def number(self) -> int:
        """The number of covariances for each pair of images."""
        return (self.height * self.width) ** 2

    def between(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Return x_p·x'_p'/C over the channels: [N, H, W, H, W, N2]."""
        return tf.tensordot(X / _length(X), tf.transpose(X2, [3, 1, 2, 0]), 1)

    def within(self, X: tf.Tensor) -> tf.Tensor:
        """Return x_p·x_p'/C of each image with itself: [1, H, W, H, W, N]."""
        return tf.einsum("nhwc,nijc->hwijn", X / _length(X), X)[None]

    def variances(self, K: tf.Tensor) -> tf.Tensor:
        """Return the variances [N, H, W] of covariances `within`, those with p = p'."""
        pixels = self.height * self.width
        diagonal = tf.reshape(K, [pixels**2, -1])[:: pixels + 1]  # [H·W, N]
        return tf.reshape(tf.transpose(diagonal), [-1, self.height, self.width])

    def second(self, variances: tf.Tensor) -> tf.Tensor:
        """Return those of p': [1, 1, 1, H, W, N2] of [N2, H, W]."""
        return tf.transpose(variances, [1, 2, 0])[None, None, None]

    def over_patches(self, K: tf.Tensor, size: Two, strides: Two, padding: Padding) -> tf.Tensor:
        """Return averages over patches, through which both pixels of a pair move together."""
        sizes = zip((self.height, self.width), size, strides, padding, strict=True)
        for axis, (number, length, stride, added) in enumerate(sizes, start=1):
            paddings = [(0, 0)] * 6
            paddings[axis] = paddings[axis + 2] = added
            padded = tf.pad(K, paddings)
            terms = []
            for start in range(length):
                place = [slice(None)] * 6
                end = start + stride * (number - 1) + 1
                place[axis] = place[axis + 2] = slice(start, end, stride)
                terms.append(padded[tuple(place)])
            K = tf.add_n(terms)
        return K / (size[0] * size[1])

    def over_windows(self, K: tf.Tensor, size: Two, strides: Two) -> tf.Tensor:
        """Return averages over windows, through which each pixel of a pair moves for itself."""
        N, H, W, *second = tf.unstack(tf.shape(K))
        K = tf.nn.avg_pool2d(tf.reshape(K, [N, H, W, -1]), size, strides, "VALID")
        K = tf.nn.avg_pool2d(tf.reshape(K, [-1, *second]), size, strides, "VALID")
        return tf.reshape(K, [N, *2 * (self.height, self.width), second[-1]])

    def inside(self, K: tf.Tensor) -> tf.Tensor:
        """Return K: no pixel is outside of the image."""
        return K


def _length(X: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.shape(X)[-1], X.dtype)


def _shifted_index(size: int, offsets: tuple[int, ...]) -> AnyNDArray:
    """Return p + d for each p and d, or the index after the last where that is outside."""
    index = np.arange(size)[:, None] + np.array(offsets)
    return np.where((index >= 0) & (index < size), index, size)


def window_offsets(offsets: Offsets, size: Two, strides: Two) -> Offsets:
    """Return the offsets between the pixels of windows that are these offsets apart."""
    rows, columns = (
        tuple(sorted({stride * d + e for d in axis for e in range(1 - window, window)}))
        for axis, window, stride in zip(offsets, size, strides, strict=True)
    )
    return rows, columns


def _window_weights(
    wanted: tuple[int, ...], given: tuple[int, ...], window: int, stride: int
) -> AnyNDArray:
    """Return the weight of each given offset, from each position in a window: [window, A, A2].

    From position i of the window at p to position i' of the one at p + c the offset is
    stride·c + i' - i, and each such pair has the weight 1/window².
    """
    position = np.arange(window)[:, None, None]
    other = np.array(given)[None, :, None] - stride * np.array(wanted) + position  # i'
    return ((other >= 0) & (other < window)) / window**2

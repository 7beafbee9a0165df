"""The squared paper: whose covariances are kept, and how they are laid out in arrays.

Of vectors it is the covariance of each pair of examples. Of images it would be that of each pair of
their pixels, but most of these are never needed: a pair (p, p + d) is kept for the offsets d that
matter at the output. A convolution keeps offsets as they are, so a network that ends in `Flatten`
needs d = 0 alone; average pooling over k × k windows needs the offsets within a window, and global
pooling needs them all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

Size: TypeAlias = Any
"""An int, or None where it is not known yet."""

Shape: TypeAlias = tuple[Size, Size] | None
"""Height and width of an image; None for a vector."""

Offsets: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The offsets along the height and along the width; every combination of the two is kept."""

Pairs: TypeAlias = Any
"""`VectorPairs` or `PixelPairs`; a layer knows from its `output_shape` which."""


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

    def same(self, K: tf.Tensor) -> tf.Tensor:
        """Return K."""
        return K

    def variances(self, K: tf.Tensor) -> tf.Tensor:
        """Return the variances [N] of covariances `within`."""
        return K[0]

    def first(self, variances: tf.Tensor) -> tf.Tensor:
        """Return [N, 1] of [N]."""
        return variances[:, None]

    def second(self, variances: tf.Tensor) -> tf.Tensor:
        """Return [1, N2] of [N2]."""
        return variances[None, :]


@dataclasses.dataclass(frozen=True)
class PixelPairs:
    """The pairs (p, p + d) of pixels in an H × W image, d from A offsets × B offsets.

    Covariances are [N, H, W, B, A, N2], with zeros where p + d is outside of the image; variances
    are [N, H, W]. (With B before A nothing so large has to be transposed.)
    """

    height: int
    width: int
    offsets: Offsets

    @property
    def number(self) -> int:
        """How many covariances there are for each pair of images."""
        return self.height * self.width * len(self.offsets[0]) * len(self.offsets[1])

    def between(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Return x_p·x'_p'/C over the channels: [N, H, W, B, A, N2]."""
        shifted = self.shifted(tf.transpose(X2, [1, 2, 0, 3]))  # [H, W, B, A, N2, C]
        return tf.einsum("nhwc,hwbamc->nhwbam", X / _length(X), shifted)

    def within(self, X: tf.Tensor) -> tf.Tensor:
        """Return x_p·x_p'/C of each image with itself: [1, H, W, B, A, N]."""
        images = tf.transpose(X, [1, 2, 0, 3])  # [H, W, N, C]
        return tf.einsum("hwnc,hwbanc->hwban", images / _length(X), self.shifted(images))[None]

    def same(self, K: tf.Tensor) -> tf.Tensor:
        """Return the part with d = 0: [N, H, W, 1, 1, N2]."""
        a, b = (offsets.index(0) for offsets in self.offsets)
        return K[:, :, :, b : b + 1, a : a + 1]

    def variances(self, K: tf.Tensor) -> tf.Tensor:
        """Return the variances [N, H, W] of covariances `within`."""
        return tf.transpose(self.same(K)[0, :, :, 0, 0], [2, 0, 1])

    def first(self, variances: tf.Tensor) -> tf.Tensor:
        """Return those of p: [N, H, W, 1, 1, 1] of [N, H, W]."""
        return variances[..., None, None, None]

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

    def inside(self, K: tf.Tensor) -> tf.Tensor:
        """Return K with zeros where p + d is outside of the image."""
        if self.offsets == ((0,), (0,)):
            return K
        rows, columns = self.offsets
        inside = _shifted_index(self.height, rows) < self.height  # [H, A]
        inside2 = _shifted_index(self.width, columns) < self.width  # [W, B]
        inside = tf.constant(inside[:, None, None, :, None], dtype=K.dtype)
        return K * (inside * tf.constant(inside2[:, :, None, None], dtype=K.dtype))


def _length(X: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.shape(X)[-1], X.dtype)


def _shifted_index(size: int, offsets: tuple[int, ...]) -> AnyNDArray:
    """Return p + d for each p and d, or the index after the last where that is outside."""
    index = np.arange(size)[:, None] + np.array(offsets)
    return np.where((index >= 0) & (index < size), index, size)

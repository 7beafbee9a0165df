"""Functions of many rows, evaluated for a block of rows at a time so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType

SIZE = 10_000
"""The number of rows of a block."""


def slices(num_rows: int, size: int = SIZE) -> Iterator[slice]:
    """Yield the rows of each block; one without rows if there are none."""
    return (slice(i, min(i + size, num_rows)) for i in range(0, max(num_rows, 1), size))


def by_blocks(
    predict: Callable[..., tuple[TensorType, ...]], *rows: TensorType, size: int = SIZE
) -> tuple[AnyNDArray, ...]:
    """Return the results of a function of rows, evaluated for `size` rows at a time."""
    blocks = [predict(*(part[of] for part in rows)) for of in slices(len(rows[0]), size)]
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))


def tensors_by_blocks(
    predict: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], X: tf.Tensor, *, size: int = SIZE
) -> tuple[tf.Tensor, ...]:
    """Return the results as tensors that gradients pass; all at once as a part of a graph."""
    if tf.is_symbolic_tensor(X) or len(X) <= size:
        return predict(X)
    blocks = [predict(X[of]) for of in slices(len(X), size)]
    return tuple(tf.concat(parts, 0) for parts in zip(*blocks, strict=True))

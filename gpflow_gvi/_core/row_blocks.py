"""Functions of many rows, evaluated for a block of rows at a time so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gpflow.base import AnyNDArray, TensorType


def by_blocks(
    predict: Callable[..., tuple[TensorType, ...]], *rows: TensorType, size: int = 10_000
) -> tuple[AnyNDArray, ...]:
    """Return the results of a function of rows, evaluated for `size` rows at a time."""
    starts = range(0, len(rows[0]), size)
    blocks = [predict(*(part[i : i + size] for part in rows)) for i in starts]
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))

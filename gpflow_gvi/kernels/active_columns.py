"""Kernels of some columns of wider rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.kernels import Combination, Kernel

from .._core.graphs import deepcopy


def on_columns(kernel: Kernel, columns: Sequence[int]) -> Kernel:
    """Return a copy of a kernel of x as one of rows that have x in these columns."""
    kernel = deepcopy(kernel)
    parts = kernel.submodules if isinstance(kernel, Combination) else [kernel]
    for part in parts:
        if isinstance(part, Kernel) and not isinstance(part, Combination):
            part.active_dims = np.asarray(columns)[part.active_dims].tolist()
    return kernel

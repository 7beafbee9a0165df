"""Kernels of some columns of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.kernels import Combination, Kernel, Linear, Stationary

from .._core.graphs import deepcopy
from ..errors import short_repr

_BY_COLUMN = ((Stationary, "lengthscales"), (Linear, "variance"))
"""Parameters of which there is one, or one for each column."""


def on_columns(kernel: Kernel, columns: Sequence[int]) -> Kernel:
    """Return a copy of a kernel of x as one of rows that have x in these columns."""
    kernel = deepcopy(kernel)
    parts = kernel.submodules if isinstance(kernel, Combination) else [kernel]
    for part in parts:
        if isinstance(part, Kernel) and not isinstance(part, Combination):
            part.active_dims = np.asarray(columns)[part.active_dims].tolist()
    return kernel


def require_columns(kernels: Sequence[Kernel], D: int) -> None:
    """Raise if a kernel is for other columns than the D ones of X."""
    for kernel in kernels:
        if isinstance(kernel, Combination):
            require_columns(kernel.kernels, D)
        else:
            _require_columns(kernel, D)


def _require_columns(kernel: Kernel, D: int) -> None:
    name, dims = type(kernel).__name__, kernel.active_dims
    beyond = (dims.stop or 0) > D if isinstance(dims, slice) else np.any(np.asarray(dims) >= D)
    if beyond:
        raise ValueError(
            f"kernel has a {name} with active_dims {short_repr(dims)}, but X has {D} columns, "
            f"numbered from 0 to {D - 1}. Name columns among these."
        )
    count = len(range(D)[dims]) if isinstance(dims, slice) else len(dims)
    for kind, parameter in _BY_COLUMN:
        shape = np.shape(getattr(kernel, parameter)) if isinstance(kernel, kind) else ()
        if shape not in ((), (1,), (count,)):
            raise ValueError(
                f"kernel has a {name} with {parameter} of shape {shape}, but it is on {count} "
                f"columns of X. Pass one number, or {count} of them."
            )

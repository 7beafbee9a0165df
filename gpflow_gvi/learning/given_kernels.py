"""Kernels that `learn` is given: checked before they are fitted to anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.kernels import Combination, Kernel, Linear, Stationary

from ..errors import short_repr

if TYPE_CHECKING:
    from .start import TrainingData

_BY_COLUMN = ((Stationary, "lengthscales"), (Linear, "variance"))
"""Parameters of which there is one, or one for each column."""


def require_kernels(kernel: Any) -> None:
    """Raise unless an argument is None, a kernel or some kernels."""
    if kernel is None or isinstance(kernel, Kernel):
        return
    several = kernel if isinstance(kernel, list | tuple) else [kernel]
    if not several:
        raise ValueError(
            f"kernel is {short_repr(kernel)}, without any kernel. Pass at least one, or None for "
            "those of recipe.kernels."
        )
    for each in several:
        if isinstance(each, Kernel):
            continue
        is_class = isinstance(each, type) and issubclass(each, Kernel)
        remedy = f"{each.__name__}()" if is_class else "gpflow.kernels.SquaredExponential()"
        raise TypeError(
            f"kernel is {short_repr(kernel)}, but {short_repr(each)} is no kernel of GPflow. Pass "
            f"an object such as {remedy}, or a list of such."
        )


def given_kernels(kernels: Sequence[Kernel], data: TrainingData) -> Sequence[Kernel]:
    """Return the kernels, or raise if one is for other columns than those of the data."""
    if data.X.ndim == 2:
        require_columns(kernels, data.X.shape[1])
    return kernels


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

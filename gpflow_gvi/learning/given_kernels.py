"""Kernels that `learn` is given: checked before they are fitted to anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpflow.kernels import Kernel

from ..errors import short_repr
from ..kernels.active_columns import require_columns

if TYPE_CHECKING:
    from .start import TrainingData


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

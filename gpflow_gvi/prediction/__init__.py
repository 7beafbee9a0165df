"""Predictions of a Gaussian process: samples, derivatives, integrals, class probabilities."""

from .._core.data import finite_rows
from .._core.feature_names import require_of
from .._core.row_blocks import by_blocks

__all__ = ["by_blocks", "finite_rows", "require_of"]

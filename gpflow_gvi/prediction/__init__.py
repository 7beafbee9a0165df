"""Predictions of a Gaussian process: samples, derivatives, integrals, class probabilities."""

from .._core.row_blocks import by_blocks

__all__ = ["by_blocks"]

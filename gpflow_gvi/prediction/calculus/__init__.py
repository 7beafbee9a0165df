"""Derivatives and integrals of a Gaussian process: linear in f, so their laws are Gaussian too.

The mean is differentiated or integrated directly. A variance is assembled like its covariance: for
r = b - AᵀA + BᵀB the slope of f has variance ∂∂'b - ‖∂A‖² + ‖∂B‖², and the integral of f has
∬b - ‖∫A‖² + ‖∫B‖². So only prior kernels are differentiated or integrated twice, by formulas: the
second automatic derivative of the distance of a point from itself is wrong for every Matérn kernel.
A kernel without a formula raises a TypeError.
"""

from .derivatives import derivative, slope_variance
from .integrals import (
    GaussianMeasure,
    Measure,
    UniformMeasure,
    embedding,
    integrate,
    mean_integral,
)

__all__ = [
    "GaussianMeasure",
    "Measure",
    "UniformMeasure",
    "derivative",
    "embedding",
    "integrate",
    "mean_integral",
    "slope_variance",
]

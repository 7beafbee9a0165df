"""Derivatives and integrals of a Gaussian process: linear in f, so their laws are Gaussian too.

The mean is differentiated or integrated as it stands. A variance is assembled like the covariance
it belongs to: for r = b - AᵀA + BᵀB the slope of f has variance ∂∂'b - ‖∂A‖² + ‖∂B‖², and the
integral of f has ∬b - ‖∫A‖² + ‖∫B‖². So only prior kernels are differentiated or integrated twice,
by formulas: twice through the distance of a point from itself, automatic differentiation is wrong
for every Matérn kernel. What has no formula here is a TypeError.
"""

from .integrals import embedding, integrate, mean_integral
from .measures import GaussianMeasure, Measure, UniformMeasure
from .slopes import derivative, slope_variance

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

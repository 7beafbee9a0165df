"""Generalised variational inference for Gaussian processes, on GPflow.

The regulariser P and the variational Q are both Gaussian processes, a mean function and a kernel;
a divergence compares them, a loss meets the data, and a model joins the two.
"""

from . import covariances, divergences, errors, losses, mean_functions, models
from .gaussian_process import GaussianProcess

__all__ = [
    "GaussianProcess",
    "covariances",
    "divergences",
    "errors",
    "losses",
    "mean_functions",
    "models",
]

__version__ = "0.1.0"

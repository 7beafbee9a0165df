"""Kernels on arrays of NumPy, with the derivatives of their hyper-parameters in closed form.

It takes TensorFlow longer to start the operations of such a kernel than NumPy to compute a row of
k(X, X), and longer to trace them than to fit hyper-parameters to some hundred rows. A row, or a
block of rows, is computed within the processor's cache.
"""

from __future__ import annotations

from .base import EVERY, Plain
from .blocks import PlainCovariances, covariance, gradient, lower_covariance
from .dispatch import has_gradient, plain
from .parameters import PlainParameter, PlainParameters, Value, is_plain, value_of

__all__ = [
    "EVERY",
    "Plain",
    "PlainCovariances",
    "PlainParameter",
    "PlainParameters",
    "Value",
    "covariance",
    "gradient",
    "has_gradient",
    "is_plain",
    "lower_covariance",
    "plain",
    "value_of",
]

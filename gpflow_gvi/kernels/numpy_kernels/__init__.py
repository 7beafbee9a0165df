"""Kernels on arrays of NumPy, with the derivatives of their hyper-parameters in closed form.

It takes TensorFlow longer to start the operations of such a kernel than NumPy to compute a row of
k(X, X), and longer to trace them than to fit hyper-parameters to some hundred rows. These are the
kernels of the recipe, with sums and products of them; GPflow evaluates all others.
"""

from .blocks import NumpyKernel
from .kinds import has_numpy_kernel, numpy_kernel
from .parameters import NumpyParameter, NumpyParameters, Value, is_known, value_of

__all__ = [
    "NumpyKernel",
    "NumpyParameter",
    "NumpyParameters",
    "Value",
    "has_numpy_kernel",
    "is_known",
    "numpy_kernel",
    "value_of",
]

"""Tempering: a covariance made wider or narrower as a whole."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import Kernel
from gpflow.utilities import positive

from .._core import checks, outputs
from . import gram
from .covariance import Covariance


class Tempered(Covariance):
    """α·r, with one α > 0 for all outputs or one for each.

    :param kernel: r, any kernel whose outputs are independent.
    :param factor: α, a number, [J], or a `gpflow.Parameter` of such a shape.
    """

    def __init__(self, kernel: Kernel, factor: Any) -> None:
        super().__init__()
        gram.require_independent_outputs(kernel)
        checks.positive("factor", factor)
        self.kernel = kernel
        if not isinstance(factor, Parameter):
            factor = Parameter(factor, transform=positive())
        self.factor = factor
        of_kernel = outputs.num_outputs(kernel)
        wrong = (
            f"factor has shape {tuple(factor.shape)}, but the kernel has {of_kernel} outputs; give "
            "one factor, or one for each output."
        )
        if len(factor.shape) > 1:
            raise ValueError(wrong)
        self.num_outputs = outputs.agreed((of_kernel, *map(int, factor.shape)), wrong)

    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return α r(x, x): [N, J]."""
        return self.factor * outputs.variance(self.kernel, X)

    def output_covariance(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return α r(X, X2): [J, N, N2]."""
        return tf.reshape(self.factor, [-1, 1, 1]) * outputs.covariance(self.kernel, X, X2)

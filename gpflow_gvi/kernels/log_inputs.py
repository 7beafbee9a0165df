"""Kernels of the logarithms of inputs: of functions of relative differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel

from .feature_map import OnFeatures


class LogInputs(OnFeatures):
    """k(x, x') = k_0(h(x), h(x')), where h takes the logarithms of some columns.

    A column has its zero at o, and h is log(x - o), shifted and scaled to the mean zero and the
    standard deviation one. Below the smallest value t that it is made for, h is linear, with the
    same slope, so that zero and negative values have one, too. Other columns are as they are.

    :param base_kernel: k_0, a kernel of one output.
    :param X: the rows that h is made for, [N, D].
    :param zeros: o, [D]; NaN for columns that are not taken as logarithms.
    """

    inputs_in_words = "log x"

    def __init__(self, base_kernel: Kernel, X: AnyNDArray, zeros: AnyNDArray) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.is_log = ~np.isnan(zeros)
        self.zeros = np.where(self.is_log, zeros, 0.0).astype(X.dtype)
        values = np.where(self.is_log, X - self.zeros, 1.0).astype(X.dtype)
        if not np.all(values > 0.0):
            raise ValueError(
                f"zeros is {zeros}, but column {np.flatnonzero(np.any(values <= 0.0, axis=0))[0]} "
                "of X has values that are not above it. Give NaN for this column."
            )
        self.least = values.min(axis=0)
        logs = np.log(values)
        self.shift, deviation = logs.mean(axis=0), logs.std(axis=0)
        self.scale = np.where(deviation > 0.0, deviation, 1.0).astype(X.dtype)

    @check_shapes(
        "X: [N, D]",
        "return: [N, D]",
    )
    def features(self, X: TensorType) -> tf.Tensor:
        """Return h(X): [N, D]."""
        return self._mapped(tf.convert_to_tensor(X), tf, tf.math.log)

    def numpy_features(self, X: AnyNDArray) -> AnyNDArray:
        """Return h(X) of an array: [N, D]."""
        return np.asarray(self._mapped(X, np, np.log))

    def _mapped(self, X: Any, library: Any, log: Callable[[Any], Any]) -> Any:
        x = library.where(self.is_log, X - self.zeros, self.least)
        below = library.minimum(x / self.least - 1.0, 0.0)
        logs = (log(library.maximum(x, self.least)) + below - self.shift) / self.scale
        return library.where(self.is_log, logs, X)

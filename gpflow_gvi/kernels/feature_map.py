"""Kernels of features h(x): those of a network, or logarithms for functions of relative changes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel

from .._core import checks, outputs
from .._core.network_function import as_function
from .finite_features import Features, features


class OnWholeInputs(Kernel):
    """A kernel of inputs as they are, which may be images; kernels inside select their columns."""

    def __call__(
        self,
        X: TensorType,
        X2: TensorType | None = None,
        *,
        full_cov: bool = True,
        presliced: bool = False,
        **options: Any,
    ) -> tf.Tensor:
        """Return k(X, X2) or its diagonal; `options` are those of `K` and `K_diag`."""
        # GPflow's version makes a slice of X, a new tensor, whose features would be computed anew.
        if full_cov:
            return self.K(X, X2, **options)
        if X2 is not None:
            raise ValueError("X2 was given with full_cov=False; the diagonal needs X alone.")
        return self.K_diag(X, **options)


class OnFeatures(OnWholeInputs, abc.ABC):
    """k(x, x') = k_0(h(x), h(x'))."""

    base_kernel: Kernel
    """k_0."""

    @abc.abstractmethod
    def features(self, X: TensorType) -> tf.Tensor:
        """Return h(X): [N, F]."""

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return k_0(h(X), h(X2)): [N, N2]."""
        return self.base_kernel(self.features(X), None if X2 is None else self.features(X2))

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """Return k_0(h(x), h(x)) for each row of X: [N]."""
        return self.base_kernel(self.features(X), full_cov=False)


class FeatureMap(OnFeatures):
    """k(x, x') = k_0(h(x), h(x')), where the network h is trained together with k_0.

    Wilson, Hu, Salakhutdinov and Xing (2016), "Deep kernel learning", eq. 5. With a linear k_0 it
    is Bayesian linear regression on the features h(x).

    :param base_kernel: k_0, a single-output kernel; its `active_dims` are columns of h(x).
    :param network: h, from [N, D] to [N, F]: a model or layer of Keras 3, or a function.
        `networks.NetworkFunction` describes how it is evaluated.
    """

    def __init__(self, base_kernel: Kernel, network: Callable[..., Any]) -> None:
        super().__init__()
        checks.instance("base_kernel", base_kernel, Kernel)
        if outputs.num_outputs(base_kernel) > 1:
            raise ValueError(
                f"base_kernel is a {type(base_kernel).__name__} with "
                f"{outputs.num_outputs(base_kernel)} outputs; it must have one. For several make "
                "one FeatureMap for each, joined by gpflow.kernels.SeparateIndependent."
            )
        self.base_kernel = base_kernel
        self.network = as_function(network)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one input, if the network declares it."""
        return self.network.input_shape

    @check_shapes(
        "X: [N, D...]",
        "return: [N, F]",
    )
    def features(self, X: TensorType) -> tf.Tensor:
        """Return h(X): [N, F]."""
        return self.network(X)


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


@features.register(OnFeatures)
def _features(kernel: OnFeatures) -> Features | None:
    of_base = features(kernel.base_kernel)
    return None if of_base is None else lambda X: of_base(kernel.features(X))

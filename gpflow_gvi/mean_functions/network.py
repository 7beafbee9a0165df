"""A neural network as a mean function, trained with Q or evaluated beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from gpflow.utilities import positive

from .._core.network_function import as_function


class Network(MeanFunction):
    """A neural network as a mean function: m(x) = h(x).

    :param network: h, from [N, D] to [N, J]: a model or layer of Keras 3, or a function.
        `networks.NetworkFunction` describes how it is evaluated.
    """

    def __init__(self, network: Callable[..., Any]) -> None:
        super().__init__()
        self.network = as_function(network)

    @property
    def num_outputs(self) -> int:
        """The number J of outputs, if the network declares it without an input."""
        return self.network.num_outputs

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one input, if the network declares it."""
        return self.network.input_shape

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return h(X): [N, J]."""
        return self.network(X)


class NetworkOutputs(MeanFunction):
    """m(x) = τ (h(x) + c(x)) + b w(x) (1 - 1/s(x))² for rows [h(x), ..., w(x), s(x)].

    The first J columns are what a network returned for x. s is 1 where the network was trained, and
    large far away, where b outgrows h. The standard deviation of f is proportional to w.

    :param num_outputs: J.
    :param factor: τ, the inverse of a temperature where h are logits.
    :param beyond: b, [J]; without it the last two columns have no meaning.
    :param correction: c, a function of the rows; by default zero.
    """

    def __init__(
        self,
        num_outputs: int,
        factor: TensorType = 1.0,
        beyond: TensorType | None = None,
        correction: MeanFunction | None = None,
    ) -> None:
        super().__init__()
        self.num_outputs = num_outputs
        self.factor = Parameter(factor, transform=positive(lower=0.0), trainable=False)
        self.beyond = None if beyond is None else Parameter(beyond, trainable=False)
        self.correction = correction

    @check_shapes(
        "X: [batch..., D]",
        "return: [batch..., J]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return m(x) for each row: [N, J]."""
        h = X[..., : self.num_outputs]
        if self.correction is not None:
            rows = tf.reshape(X, [-1, X.shape[-1]])
            h += tf.reshape(self.correction(rows), tf.shape(h))
        h = self.factor * h
        if self.beyond is None:
            return h
        return h + self.beyond * X[..., -2:-1] * tf.square(1.0 - 1.0 / X[..., -1:])

    def variance_scale(self, X: TensorType) -> tf.Tensor:
        """Return w²(x), to which the variance of f is proportional, for each row: [N]."""
        return tf.ones_like(X[:, 0]) if self.beyond is None else tf.square(X[:, -2])

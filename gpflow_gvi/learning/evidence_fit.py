"""Hyper-parameters of the greatest evidence.

The evidence is that of Y - Σ_c w_c F_c under a zero mean, with the noise v H^κ: F are predictions
at the rows by models that have not seen them, H a pattern of the noise. NumPy evaluates it where it
knows the kernel, and a graph elsewhere. What varies from one candidate, or one call of `learn`, to
the next is an argument of the graph or a value of a variable, so that a kernel of the same
structure, with data of any size, needs no new graph. Tracing takes as long as some hundred
evaluations on small data, and leaves memory behind.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module
from gpflow.config import default_float
from gpflow.functions import Zero
from gpflow.kernels import Kernel
from gpflow.utilities import parameter_dict

from .._core.graphs import deepcopy, without_gradients
from .._core.lru_cache import LRUCache
from ..gaussian_process import GaussianProcess
from ..kernels.structure import structure_of, structure_of_parameter
from ..regulariser.evidence import DataEvidence, Evidence, InducingEvidence
from ..regulariser.lbfgs import LossWithGradients, Minimise, assign_by_id
from ..regulariser.plain_evidence import PlainLoss, has_plain_loss

MAX_STRUCTURES = 8
"""The number of structures whose fits are kept."""


class Rows(NamedTuple):
    """The rows that the evidence is of, and what is known of them."""

    X: AnyNDArray
    """[N, D]."""
    Y: AnyNDArray
    """[N, J]."""
    means: AnyNDArray
    """F: [C, N, J]."""
    pattern: AnyNDArray
    """H: [N, J]."""

    def first(self, count: int) -> Rows:
        """Return the first rows."""
        X, Y, means, pattern = self
        return Rows(X[:count], Y[:count], means[:, :count], pattern[:count])


class EvidenceFit:
    """The parameters of the evidence, and its derivatives.

    :param kernel: k, with the hyper-parameters to start from.
    :param variance: v, the variance of the noise to start from.
    :param shape: C, D and J.
    :param evidence: what is maximised.
    """

    def __init__(
        self,
        kernel: Kernel,
        variance: Parameter,
        shape: tuple[int, int, int],
        evidence: Evidence,
    ) -> None:
        C, D, J = shape
        self.kernel = deepcopy(kernel)
        self.variance = deepcopy(variance)
        self.weights = tf.Variable(tf.zeros([C, J], default_float()))
        half: AnyNDArray = np.asarray(0.5, default_float())
        self.exponent = Parameter(0.0, prior=tfp.distributions.Normal(half, half))
        self.lock = threading.Lock()
        self._prior = GaussianProcess(Zero(J), self.kernel)
        self._evidence = evidence
        self.parameters = [
            *self.kernel.trainable_parameters,
            *([self.variance] if self.variance.trainable else []),
            self.exponent,
        ]
        self.variables: list[tf.Variable] = [
            *(parameter.unconstrained_variable for parameter in self.parameters),
            self.weights,
        ]
        is_plain = has_plain_loss(self.kernel, self.variance, evidence, D)
        arguments = self.kernel, evidence, self.variance, self.exponent
        self._plain = PlainLoss(*arguments) if is_plain else None
        inputs = tf.TensorSpec([None, D], default_float())
        columns = tf.TensorSpec([None, J], default_float())
        means = tf.TensorSpec([C, None, J], default_float())
        self._specs = inputs, inputs, columns, means, columns
        self.value = tf.function(self._value, autograph=False, input_signature=self._specs)

    def start(self, kernel: Kernel, variance: Any, weight: float, exponent: float) -> None:
        """Take the values to start from."""
        assign_all(self.kernel, kernel)
        assign(self.variance, variance)
        self.weights.assign(tf.fill(self.weights.shape, tf.constant(weight, default_float())))
        self.exponent.assign(exponent)

    def minimise(
        self, minimise: Minimise, Z: AnyNDArray, rows: Rows, *, means: bool, pattern: bool
    ) -> float:
        """Fit the parameters, and return minus the log evidence.

        :param minimise: how.
        :param Z: the inducing points, [M, D].
        :param rows: the rows.
        :param means: whether the weights are fitted.
        :param pattern: whether the exponent of the pattern is fitted.
        """
        fixed = [] if pattern else [self.exponent.unconstrained_variable]
        fixed += [] if means else [self.weights]
        variables = [v for v in self.variables if not any(v is other for other in fixed)]
        loss = LossWithGradients(
            lambda: self.value(*map(tf.convert_to_tensor, (Z, *rows))),
            lambda at: self.value_and_gradients(Z, *rows, at=at),
            self.variables,
        )
        minimise(loss, variables)
        value = float(self.value_and_gradients(Z, *rows)[0])
        return value if pattern else value + float(self.exponent.log_prior_density())

    def value_and_gradients(
        self, *arrays: AnyNDArray, at: Mapping[int, AnyNDArray] = MappingProxyType({})
    ) -> tuple[Any, Sequence[Any]]:
        """Return minus the log evidence, and its gradients in all variables.

        :param arrays: Z, and the parts of the rows.
        :param at: values of variables by their ids; those that are not among them have their own.
        """
        if self._plain is not None:
            # With more jitter the graph may have a value where NumPy has none.
            with contextlib.suppress(np.linalg.LinAlgError):
                return self._of_numpy(self._plain, at, *(np.asarray(a, np.float64) for a in arrays))
        assign_by_id(self.variables, at)
        return self.graph(*map(tf.convert_to_tensor, arrays))

    @functools.cached_property
    def graph(self) -> Any:
        """Minus the log evidence, and its gradients in all variables."""
        return without_gradients(self._value_and_gradients, *self._specs)

    def _of_numpy(
        self,
        loss: PlainLoss,
        at: Mapping[int, AnyNDArray],
        Z: AnyNDArray,
        X: AnyNDArray,
        Y: AnyNDArray,
        means: AnyNDArray,
        pattern: AnyNDArray,
    ) -> tuple[float, list[AnyNDArray]]:
        weights = at[id(self.weights)] if id(self.weights) in at else self.weights.numpy()
        residual = Y - np.einsum("cj,cnj->nj", weights, means)
        value, gradients, by_residual = loss(Z, X, residual, pattern, at=at)
        of_weights = -np.einsum("nj,cnj->cj", by_residual, means)
        return value, [*(gradients[id(each)] for each in self.variables[:-1]), of_weights]

    def _value_and_gradients(
        self, Z: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, means: tf.Tensor, pattern: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            value = self._value(Z, X, Y, means, pattern)
        gradients = tape.gradient(value, self.variables, unconnected_gradients="zero")
        return value, gradients

    def _value(
        self, Z: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, means: tf.Tensor, pattern: tf.Tensor
    ) -> tf.Tensor:
        residual = Y - tf.reduce_sum(self.weights[:, None, :] * means, axis=0)  # [N, J]
        noise = self.variance * tf.pow(pattern, self.exponent)  # [N, J]
        value = -self._evidence.log_density(self._prior, noise, (Z, residual), (X, residual))
        return value - tf.add_n([parameter.log_prior_density() for parameter in self.parameters])


def assign(parameter: Parameter, value: Any) -> None:
    """Give a parameter the value of another one with the same transform, or a number.

    A value that has come to its bound has no inverse, so that it is copied as it is stored.
    """
    if isinstance(value, Parameter):
        parameter.unconstrained_variable.assign(value.unconstrained_variable)
    else:
        parameter.assign(value)


def assign_all(ours: Module, theirs: Module) -> None:
    """Give parameters the values of others with the same paths."""
    values = parameter_dict(theirs)
    for path, parameter in parameter_dict(ours).items():
        assign(parameter, values[path])


fits = LRUCache(MAX_STRUCTURES)
"""The fits of structures."""


def evidence_fit(
    kernel: Kernel, variance: Parameter, shape: tuple[int, int, int], evidence: Evidence
) -> EvidenceFit:
    """Return an `EvidenceFit` for a kernel, one that has its graph already if there is one."""
    of_kernel = structure_of(kernel)
    if of_kernel is None or type(evidence) not in (DataEvidence, InducingEvidence):
        return EvidenceFit(kernel, variance, shape, evidence)
    of_noise = structure_of_parameter(variance)
    key = (of_kernel, of_noise, shape, type(evidence), default_float())
    return fits.get_or_make(key, lambda: EvidenceFit(kernel, variance, shape, evidence))

"""Hyper-parameters of P under Gaussian noise: those of the greatest evidence.

The evidence is that of Y - Σ_c w_c F_c under P, with the noise σ² H^κ: F are predictions at the
rows by models that have not seen them, H a pattern of the noise. NumPy evaluates it where it knows
the kernel, and a graph elsewhere. What varies from one fit to the next is an argument of the graph
or a value of a variable, so that a kernel of the same structure, with data of any size, needs no
new graph. Tracing takes as long as some hundred evaluations on small data, and leaves memory
behind.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, TensorType
from gpflow.config import default_float
from gpflow.functions import Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.utilities import parameter_dict

from .._core import outputs
from .._core.graphs import without_gradients
from ..gaussian_process import GaussianProcess
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from ..kernels.numpy_parameters import (
    THEIR_OWN,
    NumpyParameter,
    NumpyParameters,
    ValuesById,
    is_known,
)
from .evidence import Evidence, InducingEvidence
from .exact_evidence import exact_evidence
from .lbfgs import LossWithGradients, Minimise, assign_by_id, by_tape

BOUNDS_OF_EXPONENT = 0.0, 1.5
"""The bounds of κ: a learned pattern is flatter than the errors are, but not by much."""


class Rows(NamedTuple):
    """The rows that the evidence is of, and what is known of them."""

    X: TensorType
    """[N, D...]."""
    Y: TensorType
    """[N, J]."""
    means: TensorType
    """F: [N, C, J]."""
    pattern: TensorType
    """H: [N, J]."""

    @classmethod
    def of(cls, X: TensorType, Y: TensorType) -> Rows:
        """Return rows without predictions and with equal noise."""
        (N, J), dtype = Y.shape, default_float()
        return cls(X, Y, np.zeros([N, 0, J], dtype), np.ones([N, J], dtype))


class EvidenceFit:
    """The parameters of the evidence, and its derivatives.

    :param prior: P before it is conditioned; it is fitted in place.
    :param likelihood: Gaussian noise, of variance σ²; it is fitted in place.
    :param features: the shape of a row of X.
    :param num_means: C, the number of predictions, with a weight in [0, 1] for each output: out of
        fold they correlate negatively with Y, which weights of both signs would exploit.
    """

    def __init__(
        self,
        prior: GaussianProcess,
        likelihood: Gaussian,
        evidence: Evidence,
        *,
        features: Sequence[int],
        num_outputs: int,
        num_means: int = 0,
    ) -> None:
        C, J, dtype = num_means, num_outputs, default_float()
        self.prior = prior
        self.likelihood = likelihood
        self.variance = cast(Any, likelihood.variance)
        """σ², where it is one number."""
        self.weights = tf.Variable(tf.zeros([C, J], dtype))
        half: AnyNDArray = np.asarray(0.5, dtype)
        self.exponent = Parameter(0.0, prior=tfp.distributions.Normal(half, half))
        self._evidence = evidence
        parts = Module()
        parts.parts = prior, likelihood, self.exponent  # what they share counts once
        self._trainable = parts.trainable_parameters
        self.variables: list[tf.Variable] = [*parts.trainable_variables, self.weights]
        self._is_exact = (
            type(evidence) is InducingEvidence
            and isinstance(prior.mean_function, Zero)
            and isinstance(self.variance, Parameter)  # not a function of x
            and is_known(self.variance)
            and has_numpy_kernel(prior.kernel, features)
        )
        """Whether NumPy has the evidence of all rows."""
        if self._is_exact:  # some of those of the kernel may be fixed
            every = {id(p): p for p in (*prior.kernel.parameters, self.variance, self.exponent)}
            self._known = [NumpyParameter(parameter) for parameter in every.values()]
        inputs, columns = tf.TensorSpec([None, *features], dtype), tf.TensorSpec([None, J], dtype)
        self._specs = inputs, inputs, columns, tf.TensorSpec([None, C, J], dtype), columns
        self.value = tf.function(self._value, autograph=False, input_signature=self._specs)

    def start(
        self, kernel: Kernel, variance: Any, weights: AnyNDArray | None, exponent: float
    ) -> None:
        """Take the values to start from: of k, σ², all weights, which are zero if None, and κ."""
        assign_all(self.prior.kernel, kernel)
        assign(self.variance, variance)
        nothing: AnyNDArray = np.zeros(self.weights.shape, default_float())
        self.weights.assign(nothing if weights is None else weights)
        self.exponent.unconstrained_variable.assign(exponent)

    def minimise(
        self,
        minimise: Minimise,
        Z: TensorType,
        rows: Rows,
        *,
        means: bool = False,
        pattern: bool = False,
    ) -> float:
        """Fit the parameters, and return minus the log evidence.

        :param means: whether the weights are fitted.
        :param pattern: whether the exponent of the pattern is fitted.
        """
        fixed = [] if pattern else [self.exponent.unconstrained_variable]
        fixed += [] if means else [self.weights]
        variables = [v for v in self.variables if not any(v is other for other in fixed)]
        constants = THEIR_OWN
        if self._is_exact:  # NumPy would read values of variables, which takes long
            read = (self.weights, *(each.parameter.unconstrained_variable for each in self._known))
            changing = {id(v) for v in variables}
            constants = {id(v): v.value().numpy() for v in read if id(v) not in changing}
        loss = LossWithGradients(
            lambda: self.value(*map(tf.convert_to_tensor, (Z, *rows))),
            lambda at: self.value_and_gradients(Z, rows, at={**constants, **at}),
            self.variables,
            {
                id(self.weights): (0.0, 1.0),
                id(self.exponent.unconstrained_variable): BOUNDS_OF_EXPONENT,
            },
        )
        minimise(loss, variables)
        value = float(self.value_and_gradients(Z, rows)[0])
        if pattern:
            return value
        exponent = NumpyParameter(self.exponent)
        return value + exponent.log_prior(exponent.values()[0])[0]

    def value_and_gradients(
        self, Z: TensorType, rows: Rows, *, at: ValuesById = THEIR_OWN
    ) -> tuple[Any, Sequence[Any]]:
        """Return minus the log evidence, and its gradients in all variables."""
        if self._is_exact:
            # With more jitter the graph may have a value where NumPy has none.
            with contextlib.suppress(np.linalg.LinAlgError):
                return self._of_numpy(rows, at)
        assign_by_id(self.variables, at)
        return self.graph(*map(tf.convert_to_tensor, (Z, *rows)))

    @functools.cached_property
    def graph(self) -> Any:
        """Minus the log evidence, and its gradients in all variables."""

        def value_and_gradients(*tensors: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            return by_tape(lambda: self._value(*tensors), self.variables)

        return without_gradients(value_and_gradients, *self._specs)

    def _of_numpy(self, rows: Rows, at: ValuesById) -> tuple[float, list[AnyNDArray]]:
        X, Y, means, pattern = (np.asarray(each, np.float64) for each in rows)
        read = NumpyParameters(self._known, at)
        weights = at[id(self.weights)] if id(self.weights) in at else self.weights.numpy()
        residual = Y - np.einsum("cj,ncj->nj", weights, means)
        variance, exponent = (read.values[id(each)] for each in (self.variance, self.exponent))
        ratio = pattern**exponent
        covariances = numpy_kernel(self.prior.kernel, X, values=read.values)
        found = exact_evidence(covariances, variance * ratio, residual)
        by_ratio = found.by_noise * ratio
        by_exponent = variance * np.sum(by_ratio * np.log(pattern))
        by_noise = (self.variance, np.sum(by_ratio)), (self.exponent, by_exponent)
        log_prior, by_variable = read.with_priors(self._trainable, [*found.by_kernel, *by_noise])
        by_weights = np.einsum("nj,ncj->cj", found.by_residual, means)
        return -found.value - log_prior, [*(-part for part in by_variable), by_weights]

    def _value(
        self, Z: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, means: tf.Tensor, pattern: tf.Tensor
    ) -> tf.Tensor:
        residual = Y - tf.reduce_sum(self.weights * means, axis=1)  # [N, J]
        variance = outputs.noise_variance_at(self.likelihood, X, pattern.shape[-1])
        noise = variance * tf.pow(pattern, self.exponent)  # [N, J]
        at_points = Z, residual if self._evidence.needs_inducing_outputs else None
        value = -self._evidence.log_density(self.prior, noise, at_points, (X, residual))
        return value - tf.add_n([each.log_prior_density() for each in self._trainable])


def assign(parameter: Parameter | tf.Variable, value: Any) -> None:
    """Give a parameter the value of another one with the same transform, or a number.

    A value that has come to its bound has no inverse, so that it is copied as it is stored.

    :param parameter: or a variable, as a kernel's network has them.
    """
    if isinstance(parameter, Parameter) and isinstance(value, Parameter):
        parameter.unconstrained_variable.assign(value.unconstrained_variable)
    else:
        parameter.assign(value)


def assign_all(ours: Module, theirs: Module) -> None:
    """Give parameters the values of others with the same paths."""
    values = parameter_dict(theirs)
    for path, parameter in parameter_dict(ours).items():
        assign(parameter, values[path])

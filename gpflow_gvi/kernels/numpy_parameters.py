"""Parameters of kernels as arrays of NumPy: values, prior densities, and their derivatives."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, PriorOn

ValuesById = Mapping[int, AnyNDArray]
"""Values by the ids of parameters, or of their variables; what is not there has its own."""

THEIR_OWN: ValuesById = MappingProxyType({})

Map = Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]
"""From the variable of a parameter to its value and to the derivative of that."""


def value_of(parameter: Parameter) -> AnyNDArray:
    """Return the value of a parameter, without TensorFlow where the transform is known."""
    known = _map_of(parameter) is not None
    return NumpyParameter(parameter).values()[0] if known else np.asarray(parameter.numpy())


def is_known(parameter: Parameter) -> bool:
    """Return True if a `NumpyParameter` supports the transform and the prior."""
    prior, shape = parameter.prior, parameter.shape
    if _map_of(parameter) is None:
        return False
    return prior is None or (
        type(prior) in (tfp.distributions.LogNormal, tfp.distributions.Normal)
        and parameter.prior_on is PriorOn.CONSTRAINED
        and tf.broadcast_static_shape(prior.batch_shape, shape) == shape
    )


def _map_of(parameter: Parameter) -> Map | None:
    """Return the map from the variable u of a parameter θ to θ and dθ/du; None if it is unknown."""
    transform: Any = parameter.transform
    if isinstance(transform, tfp.bijectors.Identity | None):
        return lambda u: (u, np.ones_like(u))
    if type(transform) is tfp.bijectors.Exp:
        return lambda u: (np.exp(u), np.exp(u))
    lower = 0.0
    if type(transform) is tfp.bijectors.Chain and len(transform.bijectors) == 2:
        shift, transform = transform.bijectors
        if type(shift) is not tfp.bijectors.Shift:
            return None
        lower = float(shift.shift)
    # Bijectors take long to compare by `==`.
    if type(transform) is tfp.bijectors.Softplus and transform.hinge_softness is None:
        return lambda u: (lower + np.logaddexp(0.0, u), scipy.special.expit(u))
    return None


class NumpyParameter:
    """A parameter θ of its variable u: θ = l + log (1 + exp u), exp u, or u itself.

    :param parameter: one of which `is_known` is true.
    """

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self._map: Any = _map_of(parameter)
        self._prior: Any = parameter.prior

    @functools.cached_property
    def _location_and_scale(self) -> tuple[AnyNDArray, AnyNDArray]:
        return np.asarray(self._prior.loc), np.asarray(self._prior.scale)

    def values(self, u: AnyNDArray | None = None) -> tuple[AnyNDArray, AnyNDArray]:
        """Return θ and dθ/du, where the variable is u or has its own value."""
        # `numpy` of a variable copies its value first, which takes as long again.
        u = self.parameter.unconstrained_variable.value().numpy() if u is None else u
        theta, slope = self._map(u)
        return theta, slope

    def log_prior(self, theta: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Return log p(θ), as `gpflow.Parameter.log_prior_density`, and its derivative in θ."""
        if self._prior is None:
            return 0.0, np.zeros_like(theta)
        is_log = type(self._prior) is tfp.distributions.LogNormal
        argument = np.log(theta) if is_log else theta
        location, scale = self._location_and_scale
        z = (argument - location) / scale
        density = -0.5 * np.square(z) - np.log(scale) - 0.5 * math.log(2.0 * math.pi)
        if is_log:  # the density of a normal law of log θ, over θ
            return float(np.sum(density - argument)), -(z / scale + 1.0) / theta
        return float(np.sum(density)), -z / scale


class NumpyParameters:
    """The values of several parameters at one time, and what a function of them is by variables.

    :param at: values of variables by their ids; those that are not among them have their own.
    """

    def __init__(
        self,
        parameters: Sequence[NumpyParameter],
        at: ValuesById = THEIR_OWN,
    ) -> None:
        self._of = {
            id(each.parameter): (
                each,
                *each.values(at.get(id(each.parameter.unconstrained_variable))),
            )
            for each in parameters
        }
        self.values: ValuesById = {key: theta for key, (_, theta, _) in self._of.items()}
        """Those of the parameters, by their ids."""

    def with_priors(
        self, parameters: Sequence[Parameter], derivatives: Iterable[tuple[Parameter, AnyNDArray]]
    ) -> tuple[float, list[AnyNDArray]]:
        """Return the log prior density of parameters, and derivatives of it and of a function.

        :param parameters: those whose variables the derivatives are in.
        :param derivatives: those of the function in parameters, to be added up.
        """
        by_value: dict[int, Any] = collections.defaultdict(float)
        for parameter, part in derivatives:
            by_value[id(parameter)] += part
        log_prior, by_variable = 0.0, []
        for parameter in parameters:
            known, theta, slope = self._of[id(parameter)]
            density, by_theta = known.log_prior(theta)
            log_prior += density
            by_variable.append((by_value[id(parameter)] + by_theta) * slope)
        return log_prior, by_variable

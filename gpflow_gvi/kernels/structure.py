"""Kernels that differ in the values of their parameters alone: what they have in common."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import gpflow.kernels
import numpy as np
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Product, SeparateIndependent, Sum
from gpflow.utilities import parameter_dict

from .integrated_brownian_motion import IntegratedBrownianMotion
from .spectral_mixture import AdditiveSpectralMixture

_ARE_THEIR_PARAMETERS = (
    AdditiveSpectralMixture,
    IntegratedBrownianMotion,
    gpflow.kernels.Constant,
    gpflow.kernels.Exponential,
    gpflow.kernels.Linear,
    gpflow.kernels.Matern12,
    gpflow.kernels.Matern32,
    gpflow.kernels.Matern52,
    gpflow.kernels.RationalQuadratic,
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.White,
)
"""Kernels that are known to be their class, their active dimensions and their parameters."""


def structure_of(kernel: Kernel) -> Hashable | None:
    """Return a key that kernels share if one graph can evaluate them; None if unknown."""
    if type(kernel) in (Sum, Product, SeparateIndependent):
        parts = tuple(map(structure_of, kernel.kernels))
        return None if None in parts else (type(kernel), parts)
    if type(kernel) not in _ARE_THEIR_PARAMETERS:
        return None
    parameters = sorted(parameter_dict(kernel).items())
    of_parameters = tuple((path, structure_of_parameter(each)) for path, each in parameters)
    return type(kernel), str(kernel.active_dims), of_parameters


def structure_of_parameter(parameter: Parameter) -> Hashable:
    """Return shape, transform and prior."""
    return (
        tuple(parameter.shape),
        parameter.trainable,
        _value(parameter.transform),
        _value(parameter.prior),
        parameter.prior_on,
    )


def _value(value: Any) -> Hashable:
    """Return a key of a transform, a prior or an argument of one, down to its numbers."""
    if isinstance(value, tfp.bijectors.Bijector | tfp.distributions.Distribution):
        arguments = sorted(value.parameters.items())
        return type(value), tuple((name, _value(each)) for name, each in arguments)
    if isinstance(value, list | tuple):
        return tuple(map(_value, value))
    if isinstance(value, str | bool | None):
        return value
    array: AnyNDArray = np.asarray(value)
    # Numbers as bytes, as the text of a long array leaves out most of it.
    return array.tobytes() if array.dtype.kind in "fiub" else str(value)

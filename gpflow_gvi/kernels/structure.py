"""Kernels that differ in the values of their parameters alone: what they have in common."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import gpflow.kernels
import numpy as np
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Product, SeparateIndependent, Sum
from gpflow.utilities import parameter_dict

from .feature_map import LogInputs
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


def structure_of(kernel: Kernel, *, logs: bool = True) -> Hashable | None:
    """Return a key that kernels share if one graph can evaluate them; None if unknown.

    :param logs: whether it matters which inputs are taken as logarithms.
    """
    if type(kernel) in (Sum, Product, SeparateIndependent):
        parts = tuple(structure_of(part, logs=logs) for part in kernel.kernels)
        return None if None in parts else (type(kernel), parts)
    if type(kernel) is LogInputs:
        base = structure_of(kernel.base_kernel, logs=logs)
        if not logs:
            return base
        of_map = _key([kernel.is_log, kernel.zeros, kernel.least, kernel.shift, kernel.scale])
        return None if base is None else (LogInputs, of_map, base)
    if type(kernel) not in _ARE_THEIR_PARAMETERS:
        return None
    parameters = tuple(
        (path, tuple(each.shape), each.trainable, each.prior_on, _key([each.transform, each.prior]))
        for path, each in sorted(parameter_dict(kernel).items())
    )
    return type(kernel), str(kernel.active_dims), parameters


def _key(value: Any) -> Hashable:
    """Return a key of a transform, a prior or an argument of one, down to its numbers."""
    if isinstance(value, tfp.bijectors.Bijector | tfp.distributions.Distribution):
        return type(value), _key(sorted(value.parameters.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    array: AnyNDArray = np.asarray(value)
    # Numbers as bytes, as the text of a long array leaves out most of it.
    return array.tobytes() if array.dtype.kind in "fiub" else str(value)

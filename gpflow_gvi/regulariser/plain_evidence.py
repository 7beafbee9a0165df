"""The evidence of a kernel on arrays of NumPy, with its derivatives in closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import scipy.linalg
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.kernels import Kernel
from scipy.linalg import blas, lapack

from ..kernels.plain import (
    PlainParameter,
    PlainParameters,
    Value,
    covariance,
    gradient,
    has_gradient,
    is_plain,
    lower_covariance,
    plain,
    value_of,
)
from .evidence import Evidence, InducingEvidence


class PlainEvidence(NamedTuple):
    """The log evidence, or a bound of it, and its derivatives."""

    value: float
    by_kernel: list[tuple[Parameter, AnyNDArray]]
    """In the parameters of the kernel; one that parts of it share is there more than once."""
    by_noise: AnyNDArray
    """In σ²: [N, J]."""
    by_residual: AnyNDArray
    """In Y - m(X): [N, J]."""


def exact_evidence(
    kernel: Kernel,
    X: AnyNDArray,
    noise: AnyNDArray,
    residual: AnyNDArray,
    *,
    value: Value = value_of,
) -> PlainEvidence:
    """Return Σ_j log N(r_j; 0, S_j), S_j = K + diag σ_j², by K's lower triangle alone.

    With α = S⁻¹r its derivative in K is ½(ααᵀ - S⁻¹) (Rasmussen and Williams 2006, eq. 5.9). A
    factor serves all outputs that have the same noise. `numpy.linalg.LinAlgError` is raised if S is
    not positive definite to working precision.

    :param kernel: k, the same for all outputs.
    :param X: [N, D].
    :param noise: σ², [N, J].
    :param residual: r, [N, J].
    :param value: the values of parameters, if not those that they have.
    """
    covariances = plain(kernel, X, value=value)
    if covariances is None:
        raise ValueError(f"{kernel} and rows of shape {X.shape} have no plain kernel.")
    N, J = residual.shape
    K = lower_covariance(covariances, np.zeros([N, N]))
    density, by_noise, alpha = 0.0, np.empty([N, J]), np.empty([N, J])
    by_K: AnyNDArray | None = None
    groups = _of_equal_noise(noise)
    for i, outputs in enumerate(groups, start=1):
        S = K if i == len(groups) else K.copy()
        _diagonal(S)[:] += noise[:, outputs[0]]
        # LAPACK's matrices have the other order: its upper triangle is the lower one here.
        factor, info = lapack.dpotrf(S.T, lower=0, clean=0, overwrite_a=1)
        if info:
            raise np.linalg.LinAlgError(f"K + diag σ² is not positive definite in row {info - 1}.")
        r = residual[:, outputs]
        alpha[:, outputs], _ = lapack.dpotrs(factor, r, lower=0)
        log_determinant = 2.0 * np.sum(np.log(np.diagonal(factor)))
        density -= 0.5 * float(np.sum(r * alpha[:, outputs]))
        density -= 0.5 * len(outputs) * (log_determinant + N * math.log(2.0 * math.pi))
        inverse, _ = lapack.dpotri(factor, lower=0, overwrite_c=1)
        by_noise[:, outputs] = 0.5 * (np.square(alpha[:, outputs]) - np.diagonal(inverse)[:, None])
        twice = blas.dsyrk(
            1.0, alpha[:, outputs], -len(outputs), inverse, lower=0, overwrite_c=1
        ).T  # Σ ααᵀ - S⁻¹, which is what each pair below the diagonal has for both of its orders
        by_K = twice if by_K is None else np.add(by_K, twice, out=by_K)
    _diagonal(by_K)[:] *= 0.5
    parts = gradient(covariances, by_K, lower=True)
    by_kernel = list(zip(covariances.parameters, parts, strict=True))
    return PlainEvidence(density, by_kernel, by_noise, -alpha)


def exact_predictions(
    kernel: Kernel, X: AnyNDArray, noise: AnyNDArray, residual: AnyNDArray, new: AnyNDArray
) -> MeanAndVariance | None:
    """Return mean and variance of the residual's function at new rows, given all others.

    Rasmussen and Williams (2006), eqs. 2.25 and 2.26. None where NumPy does not know the kernel, or
    K + diag σ² is not positive definite to working precision.

    :param kernel: k, the same for all outputs.
    :param X: [N, D].
    :param noise: σ², [N, J].
    :param residual: r, [N, J].
    :param new: [B, D].
    """
    covariances, across = plain(kernel, X), plain(kernel, X, new)
    at_new = plain(kernel, new)
    if covariances is None or across is None or at_new is None:
        return None
    N, B = len(X), len(new)
    K = lower_covariance(covariances, np.zeros([N, N]))
    Kx = covariance(across, np.zeros([N, B]))
    mean, variance = np.empty((2, B, residual.shape[1]))
    for outputs in _of_equal_noise(noise):
        S = K.copy()
        _diagonal(S)[:] += noise[:, outputs[0]]
        try:
            L = scipy.linalg.cholesky(S, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        A = scipy.linalg.solve_triangular(L, Kx, lower=True, check_finite=False)
        r = scipy.linalg.solve_triangular(L, residual[:, outputs], lower=True, check_finite=False)
        mean[:, outputs] = A.T @ r
        left = at_new.variance() - np.sum(np.square(A), axis=0)
        variance[:, outputs] = np.maximum(left, 0.0)[:, None]
    return mean, variance


def has_plain_loss(kernel: Kernel, variance: object, evidence: Evidence, D: int) -> bool:
    """Return True if there is a `PlainLoss`.

    :param kernel: the kernel.
    :param variance: that of the noise.
    :param evidence: the evidence.
    :param D: the number of columns of X.
    """
    if not isinstance(variance, Parameter) or variance.shape.rank != 0:  # a function of x
        return False
    return type(evidence) is InducingEvidence and has_gradient(kernel, D) and is_plain(variance)


class PlainLoss:
    """Minus the log density of observations and parameters, with the noise v or v H^κ of rows.

    :param kernel: k.
    :param variance: v.
    :param exponent: κ, where rows have a pattern H.
    """

    def __init__(
        self,
        kernel: Kernel,
        variance: Parameter,
        exponent: Parameter | None = None,
    ) -> None:
        self._kernel, self._variance, self._exponent = kernel, variance, exponent
        own = [variance] if exponent is None else [variance, exponent]
        # Those of the kernel that are fixed are read, too.
        self._every = {id(each): PlainParameter(each) for each in (*kernel.parameters, *own)}
        self._trainable = [
            each.parameter for each in self._every.values() if each.parameter.trainable
        ]

    def __call__(
        self,
        X: AnyNDArray,
        residual: AnyNDArray,
        pattern: AnyNDArray | float = 1.0,
        *,
        at: Mapping[int, AnyNDArray] = MappingProxyType({}),
    ) -> tuple[float, dict[int, AnyNDArray], AnyNDArray]:
        """Return the loss, its gradients by the ids of variables, and its derivatives in residuals.

        :param X: [N, D].
        :param residual: Y - m(X), [N, J].
        :param pattern: H, [N, J].
        :param at: values of variables by their ids; those that are not among them have their own.
        """
        read = PlainParameters(list(self._every.values()), at)
        variance = read.value(self._variance)
        ratio = 1.0 if self._exponent is None else pattern ** read.value(self._exponent)
        noise = np.broadcast_to(variance * ratio, residual.shape)
        found = exact_evidence(self._kernel, X, noise, residual, value=read.value)
        by_ratio = found.by_noise * ratio
        derivatives = [*found.by_kernel, (self._variance, np.sum(by_ratio))]
        if self._exponent is not None:
            derivatives.append((self._exponent, variance * np.sum(by_ratio * np.log(pattern))))
        log_prior, by_variable = read.with_priors(self._trainable, derivatives)
        gradients = {
            id(each.unconstrained_variable): -part
            for each, part in zip(self._trainable, by_variable, strict=True)
        }
        return -found.value - log_prior, gradients, -found.by_residual


def _of_equal_noise(noise: AnyNDArray) -> list[list[int]]:
    """Return the outputs, those of the same noise together: a factor serves all of them."""
    same: dict[bytes, list[int]] = {}
    for j in range(noise.shape[1]):
        same.setdefault(noise[:, j].tobytes(), []).append(j)
    return list(same.values())


def _diagonal(S: AnyNDArray) -> AnyNDArray:
    """Return the diagonal of a square matrix, which may be changed: [N]."""
    return np.einsum("nn->n", S)

"""The evidence of a kernel on arrays of NumPy, with its derivatives in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import scipy.linalg
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.kernels import Kernel
from scipy.linalg import blas, lapack

from .._core import linalg
from ..kernels.plain import (
    PlainCovariances,
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
from .evidence import DataEvidence, Evidence, InducingEvidence


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


def sparse_predictions(
    kernel: Kernel,
    Z: AnyNDArray,
    X: AnyNDArray,
    noise: AnyNDArray,
    residual: AnyNDArray,
    new: AnyNDArray,
) -> MeanAndVariance | None:
    """Return the same by the optimal inducing distribution, as `conditioned` has it.

    :param Z: the inducing points, [M, D].
    """
    points, across, to_new = plain(kernel, Z), plain(kernel, Z, X), plain(kernel, Z, new)
    at_new = plain(kernel, new)
    if points is None or across is None or to_new is None or at_new is None:
        return None
    M, N, B = len(Z), len(X), len(new)
    Kzz = lower_covariance(points, np.zeros([M, M]))
    try:
        L = linalg.cholesky_of_array(Kzz, jitter=linalg.jitter_of_evidence())
    except np.linalg.LinAlgError:
        return None
    A, A_new = (
        scipy.linalg.solve_triangular(L, covariance(part, np.zeros([M, n])), lower=True)
        for part, n in ((across, N), (to_new, B))
    )
    prior_left = at_new.variance() - np.sum(np.square(A_new), axis=0)
    mean, variance = np.empty((2, B, residual.shape[1]))
    for outputs in _of_equal_noise(noise):
        scaled = A / np.sqrt(noise[:, outputs[0]])
        factor = scipy.linalg.cholesky(scaled @ scaled.T + np.eye(M), lower=True)
        c = (A / noise[:, outputs[0]]) @ residual[:, outputs]
        S = scipy.linalg.solve_triangular(factor, A_new, lower=True)
        mean[:, outputs] = S.T @ scipy.linalg.solve_triangular(factor, c, lower=True)
        left = np.maximum(prior_left, 0.0) + np.sum(np.square(S), axis=0)
        variance[:, outputs] = left[:, None]
    return mean, variance


def collapsed_evidence(
    kernel: Kernel,
    Z: AnyNDArray,
    X: AnyNDArray,
    noise: AnyNDArray,
    residual: AnyNDArray,
    *,
    value: Value = value_of,
) -> PlainEvidence:
    """Return Titsias's bound, as `evidence._collapsed_bound` does, which has the formulas.

    `numpy.linalg.LinAlgError` is raised where K_ZZ needs more jitter than is usual.

    :param kernel: k, the same for all outputs.
    :param Z: the inducing points, [M, D].
    :param X: [N, D].
    :param noise: σ², [N, J].
    :param residual: Y - m(X), [N, J].
    :param value: the values of parameters, if not those that they have.
    """
    at, M, (N, J) = PlainCovariances(kernel, Z, X, value=value), len(Z), residual.shape
    L = linalg.cholesky_of_array(at.Kzz, jitter=linalg.jitter_of_evidence())
    # L⁻¹ K_ZX, by matrices in LAPACK's order, which are transposed here.
    projected = blas.dtrsm(1.0, L.T, at.Kzx.T, side=1, lower=0, overwrite_b=1).T
    density, by_noise, by_residual = 0.0, np.empty([N, J]), np.empty([N, J])
    by_Kzz, by_Kzx, by_k = np.zeros([M, M]), np.zeros([M, N]), np.zeros(N)
    for outputs in _of_equal_noise(noise):
        J_same, variance = len(outputs), noise[:, outputs[0]]
        sigma = np.sqrt(variance)
        A, r = projected / sigma, residual[:, outputs] / sigma[:, None]  # [M, N], [N, J]
        AA = A @ A.T
        C = scipy.linalg.cholesky(AA + np.eye(M), lower=True, check_finite=False)
        c = scipy.linalg.solve_triangular(C, A @ r, lower=True, check_finite=False)  # [M, J]
        missing = float(np.sum(at.k / variance) - np.trace(AA))  # tr (K - Q)/σ²
        some = float(missing > 0.0)
        constants = 2.0 * np.sum(np.log(np.diagonal(C))) + np.sum(np.log(2.0 * np.pi * variance))
        density -= 0.5 * float(np.sum(np.square(r)) - np.sum(np.square(c)))
        density -= 0.5 * J_same * (some * missing + float(constants))

        inverse = scipy.linalg.cho_solve((C, True), np.eye(M), check_finite=False)
        gamma = scipy.linalg.solve_triangular(C.T, c, check_finite=False)  # [M, J]
        e = r - A.T @ gamma  # [N, J]
        V = some * A - inverse @ A  # [M, N]
        own = np.einsum("mn,mn->n", A, V)
        by_Kzz -= 0.5 * (gamma @ gamma.T + J_same * (inverse - np.eye(M) + some * AA))
        by_Kzx += (gamma @ e.T + J_same * V) / sigma
        by_k -= 0.5 * J_same * some / variance
        by_noise[:, outputs] = 0.5 * (
            (np.square(e) - 1.0 + (some * at.k / variance - own)[:, None]) / variance[:, None]
        )
        by_residual[:, outputs] = -e / sigma[:, None]
    by_Kzx = scipy.linalg.solve_triangular(L.T, by_Kzx, check_finite=False)
    half = scipy.linalg.solve_triangular(L.T, by_Kzz, check_finite=False)
    by_Kzz = scipy.linalg.solve_triangular(L.T, half.T, check_finite=False)
    by_kernel = at.gradient(by_Kzz, by_Kzx, by_k)
    return PlainEvidence(density, by_kernel, by_noise, by_residual)


_EVIDENCE: dict[type[Evidence], Callable[..., PlainEvidence]] = {
    InducingEvidence: lambda kernel, Z, *rows, value: exact_evidence(kernel, *rows, value=value),
    DataEvidence: collapsed_evidence,
}
"""What NumPy evaluates of the evidence, from a kernel, Z, X, σ² and the residual."""


def has_plain_loss(kernel: Kernel, variance: object, evidence: Evidence, D: int) -> bool:
    """Return whether there is a `PlainLoss`.

    :param kernel: the kernel.
    :param variance: that of the noise.
    :param evidence: the evidence.
    :param D: the number of columns of X.
    """
    if not isinstance(variance, Parameter) or variance.shape.rank != 0:  # a function of x
        return False
    return type(evidence) in _EVIDENCE and has_gradient(kernel, D) and is_plain(variance)


class PlainLoss:
    """Minus the log density of observations and parameters, with the noise v or v H^κ of rows.

    :param kernel: k.
    :param evidence: the evidence, or a bound.
    :param variance: v.
    :param exponent: κ, where rows have a pattern H.
    """

    def __init__(
        self,
        kernel: Kernel,
        evidence: Evidence,
        variance: Parameter,
        exponent: Parameter | None = None,
    ) -> None:
        self._kernel, self._variance, self._exponent = kernel, variance, exponent
        self._evidence = _EVIDENCE[type(evidence)]
        own = [variance] if exponent is None else [variance, exponent]
        # Those of the kernel that are fixed are read, too.
        self._every = {id(each): PlainParameter(each) for each in (*kernel.parameters, *own)}
        self._trainable = [
            each.parameter for each in self._every.values() if each.parameter.trainable
        ]

    def __call__(
        self,
        Z: AnyNDArray,
        X: AnyNDArray,
        residual: AnyNDArray,
        pattern: AnyNDArray | float = 1.0,
        *,
        at: Mapping[int, AnyNDArray] = MappingProxyType({}),
    ) -> tuple[float, dict[int, AnyNDArray], AnyNDArray]:
        """Return the loss, its gradients by the ids of variables, and its derivatives in residuals.

        :param Z: the inducing points, [M, D]; for the exact evidence they are X.
        :param X: [N, D].
        :param residual: Y - m(X), [N, J].
        :param pattern: H, [N, J].
        :param at: values of variables by their ids; those that are not among them have their own.
        """
        read = PlainParameters(list(self._every.values()), at)
        variance = read.value(self._variance)
        ratio = 1.0 if self._exponent is None else pattern ** read.value(self._exponent)
        noise = np.broadcast_to(variance * ratio, residual.shape)
        found = self._evidence(self._kernel, Z, X, noise, residual, value=read.value)
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

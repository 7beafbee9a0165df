"""The evidence of a kernel on arrays of NumPy, with its derivatives in closed form."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.linalg
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.kernels import Kernel
from scipy.linalg import blas, lapack

from ..kernels.numpy_kernels import NumpyKernel, has_numpy_kernel, numpy_kernel


class ExactEvidence(NamedTuple):
    """The log evidence, and its derivatives."""

    value: float
    by_kernel: list[tuple[Parameter, AnyNDArray]]
    """In the parameters of the kernel; one that parts of it share is there more than once."""
    by_noise: AnyNDArray
    """In σ²: [N, J]."""
    by_residual: AnyNDArray
    """In Y - m(X): [N, J]."""


def exact_evidence(
    covariances: NumpyKernel, noise: AnyNDArray, residual: AnyNDArray
) -> ExactEvidence:
    """Return Σ_j log N(r_j; 0, S_j), S_j = K + diag σ_j², by K's lower triangle alone.

    With α = S⁻¹r its derivative in K is ½(ααᵀ - S⁻¹) (Rasmussen and Williams 2006, eq. 5.9). A
    factor serves all outputs that have the same noise. `numpy.linalg.LinAlgError` is raised if S is
    not positive definite to working precision.

    :param covariances: K, the same for all outputs.
    :param noise: σ², [N, J].
    :param residual: r, [N, J].
    """
    N, J = residual.shape
    K = covariances.covariance(lower=True)
    density, by_noise, alpha = 0.0, np.empty([N, J]), np.empty([N, J])
    by_K: AnyNDArray = np.zeros([N, N])
    groups = _of_equal_noise(noise)
    for i, outputs in enumerate(groups, start=1):
        S = K if i == len(groups) else K.copy()
        _diagonal(S)[:] += noise[:, outputs[0]]
        # LAPACK's matrices have the other order: its upper triangle is the lower one here.
        factor, info = lapack.dpotrf(S.T, lower=0, clean=1, overwrite_a=1)
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
        ).T  # Σ ααᵀ - S⁻¹, which is what each pair below the diagonal has for both of its orders;
        # zeros, as in the factor, are above it
        by_K = twice if i == 1 else np.add(by_K, twice, out=by_K)
    _diagonal(by_K)[:] *= 0.5
    parts = covariances.gradient(by_K, lower=True)
    by_kernel = list(zip(covariances.parameters, parts, strict=True))
    return ExactEvidence(density, by_kernel, by_noise, -alpha)


def exact_predictions(
    kernel: Kernel, X: AnyNDArray, noise: AnyNDArray, residual: AnyNDArray, new: AnyNDArray
) -> MeanAndVariance | None:
    """Return mean and variance of the residual's function at new rows, given all others.

    Rasmussen and Williams (2006), eqs. 2.25 and 2.26. None where NumPy does not know the kernel, or
    K + diag σ² is not positive definite to working precision. The arguments are those of
    `exact_evidence`, and X [N, D] and new rows [B, D].
    """
    if not has_numpy_kernel(kernel, X.shape[1:]):
        return None
    K = numpy_kernel(kernel, X).covariance(lower=True)
    Kx = numpy_kernel(kernel, X, new).covariance()
    at_new = numpy_kernel(kernel, new).variance()
    mean, variance = np.empty((2, len(new), residual.shape[1]))
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
        left = at_new - np.sum(np.square(A), axis=0)
        variance[:, outputs] = np.maximum(left, 0.0)[:, None]
    return mean, variance


def _of_equal_noise(noise: AnyNDArray) -> list[list[int]]:
    """Return the outputs, those of the same noise together: a factor serves all of them."""
    same: dict[bytes, list[int]] = {}
    for j in range(noise.shape[1]):
        same.setdefault(noise[:, j].tobytes(), []).append(j)
    return list(same.values())


def _diagonal(S: AnyNDArray) -> AnyNDArray:
    """Return the diagonal of a square matrix, which may be changed: [N]."""
    return np.einsum("nn->n", S)

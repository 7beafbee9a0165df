"""The pattern of noise that varies smoothly: a Gaussian process of its log variance."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from gpflow.kernels import Constant, Kernel, SquaredExponential
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular
from scipy.optimize import Bounds, minimize
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, RegressorMixin

from ..kernels.numpy_kernels import numpy_kernel
from ..regulariser.exact_evidence import exact_evidence

Array = np.ndarray[Any, Any]

MAX_ROWS, MAX_ROWS_OF_EVIDENCE = 1000, 300
"""The process is given, and its hyper-parameters are fitted to, not more rows than these."""

MAX_DEVIATIONS = 3.0
"""The largest distance of a log hyper-parameter from its prior mean, in prior deviations of 1.

A step of the line search would otherwise reach lengthscales whose exponential is zero.
"""

NUM_ROUNDS, MAX_ITERATIONS = 2, 20
"""Rounds in which hyper-parameters are fitted to working responses, and iterations in each."""

MAX_STEPS, TOLERANCE = 20, 1e-3
"""Fisher scoring ends when no logarithm of a variance changes by more than the tolerance."""

NOISE = 2.0
"""The variance of working responses, the inverse Fisher information."""

MAX_LEFT = 0.0025 * NOISE
"""The variance of g given all e is that of a sparse process, whose pivots leave no more than this
of g's prior variance at any row."""

CONSTANT = 1.0
"""The prior variance of the mean of g, around the log of the mean squared error."""

VARIANCE = 0.5
"""The prior median of s²."""


class LogProcess(RegressorMixin, BaseEstimator):
    """An estimator of the variance exp(g(x)) of errors, from their squares e = exp(g(x)) ε².

    ε is standard normal, and g a Gaussian process with the kernel s² exp(-½ Σ_d (x_d - x_d')²/ℓ_d²)
    and an unknown mean. The Fisher information of e on g is ½ whatever g is. So Fisher scoring for
    the mode of g given all e repeats a regression, with noise of variance 2, of

        z = g + e / exp(g) - 1,

    the working responses, of whose evidence the hyper-parameters have the greatest (Breslow and
    Clayton 1993, "Approximate inference in generalized linear mixed models"). Kersting et al.
    (2007, "Most likely heteroscedastic Gaussian process regression") regress log e, which has the
    variance π²/2 around g, more than twice as much.

    What is predicted is the mean of exp(g(x)), g(x) being normal: far from all rows it is larger
    than the exponential of the mean.

    :param hyperparameters: log s², log ℓ_1, ..., log ℓ_D, with ℓ in the units of X; they are fitted
        if not given.
    """

    def __init__(self, hyperparameters: Array | None = None) -> None:
        self.hyperparameters = hyperparameters

    def fit(self, X: Array, y: Array) -> LogProcess:
        """Fit the process to squared errors.

        :param X: [N, D].
        :param y: e, [N] or [N, J], positive; columns share a kernel.
        """
        self.X_ = np.asarray(X, float)[:MAX_ROWS]
        errors = np.asarray(y, float)[:MAX_ROWS]
        given = self.hyperparameters
        self.hyperparameters_ = fitted_hyperparameters(X, y) if given is None else given
        self.scale_ = np.mean(errors, axis=0)
        ratio = (errors / self.scale_).reshape(len(errors), -1)
        K = _covariance(self.X_, self.X_, self.hyperparameters_)
        _, self.weights_ = _mode(K, ratio, np.zeros_like(ratio))
        self.pivots_, self.roots_ = _roots(K)
        return self

    def predict(self, X: Array) -> Array:
        """Return E exp(g(X)): [N] or [N, J], as `fit` was given."""
        K = _covariance(np.asarray(X, float), self.X_, self.hyperparameters_)
        variance = CONSTANT + np.exp(self.hyperparameters_[0])
        explained = np.square(K[:, self.pivots_] @ self.roots_)
        variance = variance - np.sum(explained, axis=1, keepdims=True)  # [N, 1]
        ratio = np.exp(K @ self.weights_ + 0.5 * variance)
        return self.scale_ * ratio.reshape(len(ratio), *np.shape(self.scale_))


def fitted_hyperparameters(X: Array, errors: Array) -> Array:
    """Return log s², log ℓ_1, ..., log ℓ_D of the greatest evidence and log-normal priors."""
    X, e = (np.asarray(part, float)[:MAX_ROWS_OF_EVIDENCE] for part in (X, errors))
    e = (e / np.mean(e, axis=0)).reshape(len(e), -1)
    spread = np.std(X, axis=0)
    lengthscales = np.sqrt(X.shape[1]) * np.where(spread > 0.0, spread, 1.0)
    start = np.log([VARIANCE, *lengthscales])
    theta, g = start, np.zeros_like(e)
    for _ in range(NUM_ROUNDS):
        theta = minimize(
            _loss,
            theta,
            (X, _working_responses(g, e), start),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(start - MAX_DEVIATIONS, start + MAX_DEVIATIONS),
            options={"maxiter": MAX_ITERATIONS},
        ).x
        g, _ = _mode(_covariance(X, X, theta), e, g)
    return np.asarray(theta)


@functools.cache
def _kernel(D: int) -> Kernel:
    return Constant() + SquaredExponential(lengthscales=np.ones(D))


def _loss(theta: Array, X: Array, z: Array, prior: Array) -> tuple[float, Array]:
    """Return minus the log evidence of z with log priors N(prior, 1) of θ, and its gradient."""
    kernel = _kernel(X.shape[1])
    mean, function = kernel.kernels
    values = {
        id(mean.variance): np.array(CONSTANT),
        id(function.variance): np.exp(theta[0]),
        id(function.lengthscales): np.exp(theta[1:]),
    }
    covariances = numpy_kernel(kernel, X, values=values)
    found = exact_evidence(covariances, np.full_like(z, NOISE), z)
    (_, by_variance), (_, by_lengthscales) = found.by_kernel[1:]
    gradient = np.array([by_variance, *by_lengthscales]) * np.exp(theta)
    away = theta - prior
    return 0.5 * np.sum(np.square(away)) - found.value, away - gradient


def _covariance(X: Array, other: Array, theta: Array) -> Array:
    """Return the covariance of g, with its mean: [N, M]."""
    lengthscales = np.exp(theta[1:])
    squares = cdist(X / lengthscales, other / lengthscales, "sqeuclidean")
    return CONSTANT + np.exp(theta[0] - 0.5 * squares)


def _roots(K: Array) -> tuple[Array, Array]:
    """Return M pivots and the R of kᵀ(K + 2I)⁻¹k ≈ |Rᵀk_Z|², with k_Z those k at the pivots.

    With the pivoted Cholesky factor L of K ≈ LLᵀ, and L_Z at the pivots, it is

        φᵀ(I - 2(LᵀL + 2I)⁻¹)φ,  φ = L_Z⁻¹ k_Z

    (Rasmussen and Williams 2006, eq. 8.14): L has much fewer columns than K, which takes less time
    than the eigenvectors of K.
    """
    factor, pivots, M, _ = lapack.dpstrf(K, tol=MAX_LEFT, lower=1)
    L = np.tril(factor)[:, :M]  # in the order of the pivots
    precision = cho_factor(L.T @ L + NOISE * np.eye(M), lower=True)
    explained = np.linalg.cholesky(np.eye(M) - NOISE * cho_solve(precision, np.eye(M)))
    return pivots[:M] - 1, solve_triangular(L[:M], explained, lower=True, trans=1)


def _working_responses(g: Array, e: Array) -> Array:
    return g + e * np.exp(-g) - 1.0


def _mode(K: Array, e: Array, g: Array) -> tuple[Array, Array]:
    """Return the mode of g given e, by Fisher scoring from g, and the w of g = K w: [N, J] each."""
    factor = cho_factor(K + NOISE * np.eye(len(K)))
    for _ in range(MAX_STEPS):
        weights = cho_solve(factor, _working_responses(g, e))
        step = K @ weights - g
        if np.max(np.abs(step)) < TOLERANCE:
            break
        g = g + np.clip(step, -1.0, 1.0)  # where g is too small, e / exp(g) has no bound
    return g, weights

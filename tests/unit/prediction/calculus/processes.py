"""Processes to differentiate and to integrate, and what both are compared with."""

from __future__ import annotations

import gpflow
import numpy as np
import scipy.integrate
import scipy.special
import tensorflow as tf
from gpflow import kernels

import gpflow_gvi as gvi
from gpflow_gvi.prediction import calculus
from tests import catalogue
from tests.tolerances import ITERATIVE, assert_close

M = 6
WEIGHTS = np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]])


def network(X):
    return tf.tanh(tf.matmul(X, WEIGHTS[: X.shape[-1]]))


def variational(name: str, kernel: kernels.Kernel, J: int, Z, rng: np.random.Generator):
    points = catalogue.inducing_points(Z)
    covariance = catalogue.COVARIANCES[name](kernel, points, num_latent_gps=J)
    mean = gvi.mean_functions.Inducing(
        kernel,
        points,
        mean_function=gpflow.functions.Linear(np.ones((Z.shape[1], J))),
        q_mu=rng.normal(size=(len(Z), J)),
    )
    return gvi.GaussianProcess(mean, covariance)


def prior(kernel: kernels.Kernel, J: int = 1) -> gvi.GaussianProcess:
    return gvi.GaussianProcess(gpflow.functions.Zero(J), kernel)


def differences(process, X, d: int, h: float):
    """Mean and variance of a difference of fourth order, in place of a slope: [N, J] each."""
    N, weights = len(X), np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * h)
    ends = np.vstack([X + step * h * np.eye(X.shape[1])[d] for step in (-2, -1, 1, 2)])
    mean, C = process.mean(ends).numpy(), process.covariance(ends).numpy()
    variance = np.einsum("janbn,a,b->nj", C.reshape(-1, 4, N, 4, N), weights, weights)
    return np.einsum("anj,a->nj", mean.reshape(4, N, -1), weights), variance


def require_slopes(process, X) -> None:
    """Compare with differences, extrapolated: of Matérn 3/2 their variance errs by O(h)."""
    with_steps = [
        [differences(process, X, d, h) for d in range(X.shape[1])] for h in (0.002, 0.001)
    ]
    long, short = np.moveaxis(with_steps, 1, 3)  # [2, N, D, J] each
    for found, expected in zip(calculus.derivative(process, X), 2.0 * short - long, strict=True):
        assert_close(found, expected, ITERATIVE)


MEASURES = {
    "gaussian": lambda D: calculus.GaussianMeasure([0.3, -0.2, 0.1][:D], [0.5, 1.3, 1.0][:D]),
    "uniform": lambda D: calculus.UniformMeasure([-1.0, 0.0, -2.0][:D], [0.5, 2.0, -1.0][:D]),
}


def nodes_and_weights(name: str, D: int, n: int):
    """A tensor product of SciPy's Gauss rules for the measures above."""
    if name == "gaussian":
        t, w = scipy.special.roots_hermite(n)
        columns = [m + np.sqrt(2.0 * v) * t for m, v in zip([0.3, -0.2], [0.5, 1.3], strict=True)]
    else:
        t, w = scipy.special.roots_legendre(n)
        columns = [
            low + (high - low) * (t + 1.0) / 2.0
            for low, high in zip([-1.0, 0.0], [0.5, 2.0], strict=True)
        ]
    X = np.stack(np.meshgrid(*columns[:D], indexing="ij"), axis=-1).reshape(-1, D)
    weights = np.prod(np.meshgrid(*[w / w.sum()] * D, indexing="ij"), axis=0).ravel()
    return X, weights


def require_integrals(process, name: str, D: int, n: int = 26) -> None:
    mean, variance = calculus.integrate(process, MEASURES[name](D))
    X, weights = nodes_and_weights(name, D, n if D == 2 else 60)
    assert_close(mean, weights @ process.mean(X).numpy(), ITERATIVE)
    expected = np.einsum("n,m,jnm->j", weights, weights, process.covariance(X).numpy())
    assert_close(variance, expected, ITERATIVE)

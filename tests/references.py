"""Naive oracles in NumPy and SciPy, written from definitions, independent of the package."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import gpflow
import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.special
import scipy.stats

Array = np.ndarray


def gaussian_kl(q_mean: Array, q_cov: Array, p_mean: Array, p_cov: Array) -> float:
    """KL( N(q_mean, q_cov) ‖ N(p_mean, p_cov) )."""
    delta = q_mean - p_mean
    quadratic = np.trace(np.linalg.solve(p_cov, q_cov)) + delta @ np.linalg.solve(p_cov, delta)
    logs = np.linalg.slogdet(p_cov)[1] - np.linalg.slogdet(q_cov)[1]
    return 0.5 * (quadratic - len(delta) + logs)


def regularised_kl(q_mean: Array, R: Array, p_mean: Array, K: Array, gamma: float) -> float:
    """KL( N(q_mean, R + γB·I) ‖ N(p_mean, K + γB·I) ) / B."""
    B = len(q_mean)
    ridge = gamma * B * np.eye(B)
    return gaussian_kl(q_mean, R + ridge, p_mean, K + ridge) / B


def fidelity(K: Array, R: Array) -> float:
    """tr( (K^½ R K^½)^½ ), as it is written."""
    root = scipy.linalg.sqrtm(K)
    return float(np.trace(scipy.linalg.sqrtm(root @ R @ root)).real)


def squared_wasserstein(q_mean: Array, q_cov: Array, p_mean: Array, p_cov: Array) -> float:
    """The squared 2-Wasserstein distance between two Gaussian vectors."""
    means = np.sum((q_mean - p_mean) ** 2)
    return means + np.trace(q_cov) + np.trace(p_cov) - 2.0 * fidelity(p_cov, q_cov)


Normal = tuple[float, float]
"""Mean and variance."""


def _log_density(x: Array, normal: Normal) -> Array:
    return scipy.stats.norm.logpdf(x, normal[0], np.sqrt(normal[1]))


def _integral(integrand: Callable[[Array, Array, Array], Array], q: Normal, p: Normal) -> float:
    """∫ integrand(x, log q(x), log p(x)) dx.

    By the trapezoidal rule, which converges exponentially for analytic integrands that decay.
    """
    deviations = np.sqrt([q[1], p[1]])
    reach = 40.0 * deviations.max() + 20.0 * abs(q[0] - p[0])
    x = np.arange(min(q[0], p[0]) - reach, max(q[0], p[0]) + reach, 0.1 * deviations.min())
    return scipy.integrate.trapezoid(integrand(x, _log_density(x, q), _log_density(x, p)), x)


def kl(q: Normal, p: Normal) -> float:
    """∫ q log(q/p)."""
    return _integral(lambda x, log_q, log_p: np.exp(log_q) * (log_q - log_p), q, p)


def renyi(q: Normal, p: Normal, alpha: float) -> float:
    """log( ∫ q^α p^(1-α) ) / (α-1)."""
    inner = _integral(lambda x, log_q, log_p: np.exp(alpha * log_q + (1 - alpha) * log_p), q, p)
    return np.log(inner) / (alpha - 1)


def affinity(q: Normal, p: Normal) -> float:
    """∫ √(qp)."""
    return _integral(lambda x, log_q, log_p: np.exp(0.5 * (log_q + log_p)), q, p)


def quantile_distance(q: Normal, p: Normal) -> float:
    """∫_0^1 (F_q⁻¹(u) - F_p⁻¹(u))² du, which is W₂² on the line."""

    def integrand(u: float) -> float:
        z = scipy.special.ndtri(u)  # the quantile of N(0, 1)
        first, second = (mean + np.sqrt(var) * z for mean, var in (q, p))
        return (first - second) ** 2

    # Twice the half with the lower tail would do for equal means only: both tails are needed.
    return sum(
        scipy.integrate.quad(integrand, *ends, epsabs=1e-12, epsrel=1e-10, limit=200)[0]
        for ends in ((0.0, 0.5), (0.5, 1.0))
    )


def moment_distance(q: Normal, p: Normal) -> float:
    """The squared differences of the first two central moments, each an integral."""
    means = [_integral(lambda x, *logs, i=i: x * np.exp(logs[i]), q, p) for i in (0, 1)]
    variances = [
        _integral(lambda x, *logs, i=i: (x - means[i]) ** 2 * np.exp(logs[i]), q, p) for i in (0, 1)
    ]
    return (means[0] - means[1]) ** 2 + (variances[0] - variances[1]) ** 2


PROJECTED: dict[str, Callable[[Normal, Normal], float]] = {
    "KL": kl,
    "ReverseKL": lambda q, p: kl(p, q),
    "Renyi(0.3)": partial(renyi, alpha=0.3),
    "Renyi(1)": kl,
    "Renyi(2)": partial(renyi, alpha=2.0),
    "Bhattacharyya": lambda q, p: -np.log(affinity(q, p)),
    "Hellinger": lambda q, p: 1.0 - affinity(q, p),
    "Wasserstein": quantile_distance,
    "SquaredDifference": moment_distance,
}
"""The definitions of the projected divergences, under the names of `catalogue.PROJECTED`."""


def padded(K: Array) -> Array:
    """K with GPflow's jitter on its diagonal, no more than that part of its mean."""
    K = np.asarray(K)
    return K + gpflow.config.default_jitter() * min(np.mean(np.diag(K)), 1.0) * np.eye(len(K))


@contextlib.contextmanager
def jitter_of_posteriors() -> Iterator[None]:
    """Let GPflow's models have the jitter of P given data, a ten-thousandth of theirs."""
    jitter = 1e-4 * gpflow.config.default_jitter()
    with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
        yield

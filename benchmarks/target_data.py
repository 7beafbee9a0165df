"""Simulated data of each kind of target, with the law that they are drawn from.

Functions are of one feature on [-3, 3], or of three, the last of which says nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from scipy import stats
from scipy.special import ndtr

from gpflow_gvi.likelihoods import Ordinal

EDGES = np.array([-1.5, -0.5, 0.5, 1.5])
NUM_TEST = 1000


class Levels:
    """The number of edges below f + 0.3 ε, ε ~ N(0, 1): a law of levels in an order."""

    def __init__(self, f: np.ndarray) -> None:
        below = ndtr((EDGES - f) / 0.3)  # [N, K - 1]
        self.p = np.diff(below, axis=1, prepend=0.0, append=1.0)

    def rvs(self, random_state: np.random.Generator) -> np.ndarray:
        """Draw levels, [N, 1]."""
        u = random_state.random((len(self.p), 1))
        return np.sum(u > np.cumsum(self.p, axis=1)[:, :-1], axis=1, keepdims=True)

    def logpmf(self, y: np.ndarray) -> np.ndarray:
        """Return log p(y), [N, 1]."""
        return np.log(np.take_along_axis(self.p, y.astype(int), axis=1))

    def mean(self) -> np.ndarray:
        """Return E y, [N, 1]."""
        return self.p @ np.arange(self.p.shape[1])[:, None]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of target, and the law that its data are drawn from.

    :param f: of X, [N, D], the function that is to be learned: [N, 1].
    :param law: of f(x), and of x, the law of y: a frozen distribution as SciPy has them.
    :param likelihood: makes the likelihood that `learn` and sparse processes are given.
    :param num_rows: N.
    :param outliers: the fraction of training rows whose Y is uniform in the range of the others,
        widened by half of it on both sides.
    """

    f: Callable[[np.ndarray], np.ndarray]
    law: Callable[[np.ndarray, np.ndarray], Any]
    likelihood: Callable[[], gpflow.likelihoods.Likelihood] | None
    num_features: int = 1
    num_rows: int = 150
    outliers: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sample:
    """Training and test data, and what is known of the law of the test data."""

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray
    mean: np.ndarray
    """E y at the test rows, [N, 1]."""
    log_density: np.ndarray
    """log p(y) of the test rows, [N]."""
    is_clean: np.ndarray
    """Whether the training row is no outlier: [N]."""


def sample(kind: Kind, seed: int) -> Sample:
    """Draw training and test data."""
    rng = np.random.default_rng(seed)
    N = kind.num_rows
    X = rng.uniform(-3.0, 3.0, size=(N + NUM_TEST, kind.num_features))
    Y = kind.law(kind.f(X), X).rvs(random_state=rng).astype(float)
    at_test = kind.law(kind.f(X[N:]), X[N:])
    log_density = getattr(at_test, "logpdf", None) or at_test.logpmf
    clean = Y[:N].copy()
    outlier = rng.permutation(N) < round(kind.outliers * N)
    ends = clean.min() - 0.5 * np.ptp(clean), clean.max() + 0.5 * np.ptp(clean)
    Y_train = np.where(outlier[:, None], rng.uniform(*ends, size=(N, 1)), clean)
    density = log_density(Y[N:])[:, 0]
    return Sample(X[:N], Y_train, X[N:], Y[N:], at_test.mean(), density, ~outlier)


def wave(X: np.ndarray) -> np.ndarray:
    """Return a sinusoid that becomes faster, and a trend."""
    x = X[:, :1]
    return np.sin(1.5 * x + 0.2 * x**2) + 0.3 * x


def interaction(X: np.ndarray) -> np.ndarray:
    """Return a sinusoid of the first feature, and its product with the second."""
    return np.sin(1.2 * X[:, :1]) + 0.25 * X[:, :1] * X[:, 1:2]


def impact(X: np.ndarray) -> np.ndarray:
    """Return a fall and an oscillation after an impact, as in the motorcycle data."""
    t = X[:, :1] + 1.0
    return np.where(t > 0.0, -3.0 * np.sin(2.5 * t) * np.exp(-0.6 * t), 0.0)


def _impact_noise(f: np.ndarray, X: np.ndarray) -> Any:
    return stats.norm(f, 0.05 + 0.6 / (1.0 + np.exp(-4.0 * (X[:, :1] + 0.5))))


def _both(name: str, law: Any, likelihood: Any) -> dict[str, Kind]:
    """Return a kind with a function of one feature and one with that of three."""
    return {
        name: Kind(wave, law, likelihood),
        f"{name}, 3 features": Kind(interaction, law, likelihood, 3, 250),
    }


def _normal(f: np.ndarray, _: np.ndarray) -> Any:
    return stats.norm(f, 0.2)


def _beta(f: np.ndarray, _: np.ndarray) -> Any:
    mean = 1.0 / (1.0 + np.exp(-f))
    return stats.beta(10.0 * mean, 10.0 * (1.0 - mean))


KINDS: dict[str, Kind] = {
    **_both("counts", lambda f, _: stats.poisson(np.exp(1.0 + f)), gpflow.likelihoods.Poisson),
    **_both("heavy tails", lambda f, _: stats.t(3.0, f, 0.2), gpflow.likelihoods.StudentT),
    **_both("amounts", lambda f, _: stats.gamma(3.0, 0.0, np.exp(f)), gpflow.likelihoods.Gamma),
    "waiting times": Kind(
        wave, lambda f, _: stats.expon(0.0, np.exp(f)), gpflow.likelihoods.Exponential
    ),
    "fractions": Kind(wave, _beta, gpflow.likelihoods.Beta),
    "levels": Kind(wave, lambda f, _: Levels(f), lambda: Ordinal(EDGES)),
    "outliers, 30 %": Kind(wave, _normal, None, outliers=0.3),
    "outliers, none": Kind(wave, _normal, None),
    "varying noise": Kind(impact, _impact_noise, gpflow.likelihoods.HeteroskedasticTFPConditional),
    "varying noise, 3 features": Kind(
        interaction,
        lambda f, X: stats.norm(f, 0.1 + 0.5 / (1.0 + np.exp(-2.0 * X[:, 1:2]))),
        gpflow.likelihoods.HeteroskedasticTFPConditional,
        3,
        250,
    ),
}

"""The weights of candidates: stacking of their predictive densities.

    max_w  Σ_n log Σ_c w_c p_c(y_n | rows without n) + Σ_c a log w_c,    w_c ≥ 0,  Σ_c w_c = 1

Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive
distributions". The prior keeps weights of candidates that hardly differ from depending on single
rows. A mixture is as good as its best part, but for what is too uncertain to tell.
"""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import logsumexp

from .recipe import Recipe

MAX_ITERATIONS = 500
TOLERANCE = 1e-8


def stacked(log_densities: AnyNDArray, prior: float) -> AnyNDArray:
    """Return the weights of the greatest posterior density, by expectation maximisation: [C].

    :param log_densities: those of rows that the candidates have not seen, [C, N].
    :param prior: a.
    """
    C, N = log_densities.shape
    w = np.full(C, 1.0 / C)
    for _ in range(MAX_ITERATIONS):
        joint = np.log(w)[:, None] + log_densities
        responsibility = np.exp(joint - logsumexp(joint, axis=0))
        updated = (np.sum(responsibility, axis=1) + prior) / (N + C * prior)
        if np.max(np.abs(updated - w)) < TOLERANCE:
            break
        w = updated
    return updated


def pooled(log_densities: AnyNDArray, recipe: Recipe) -> AnyNDArray:
    """Return the weights of a pool, many of them zero: [C].

    It is the best candidate alone if the mixture gains less than the recipe's least gain, and no
    part of it may be better than that candidate by more than that: with few rows the choice would
    be left to chance, which costs more than the mixture does.

    :param log_densities: those of rows that the candidates have not seen, [C, N].
    :param recipe: the prior, the least weight and gain, and the largest number of parts.
    """
    C, N = log_densities.shape
    means = np.mean(log_densities, axis=1)
    best = int(np.argmax(means))
    weights = stacked(log_densities, recipe.prior)
    parts = np.sort(np.argsort(-weights)[: recipe.max_parts])
    weights = np.zeros(C)
    weights[parts] = stacked(log_densities[parts], recipe.prior)
    weights = np.where(weights >= recipe.min_weight, weights, 0.0)
    weights /= np.sum(weights)
    differences = log_densities - log_densities[best]
    errors = np.std(differences, axis=1) / np.sqrt(N)
    may_gain = means - means[best] + recipe.standard_errors * errors  # [C]
    is_clear = np.all(may_gain[weights > 0.0] < recipe.min_gain)
    if is_clear and log_density(weights, log_densities) < means[best] + recipe.min_gain:
        return np.eye(C)[best]
    return weights


def log_density(weights: AnyNDArray, log_densities: AnyNDArray) -> float:
    """Return the mean log density of the mixture.

    :param weights: [C].
    :param log_densities: [C, N].
    """
    used = weights > 0.0
    joint = np.log(weights[used])[:, None] + log_densities[used]
    return float(np.mean(logsumexp(joint, axis=0)))

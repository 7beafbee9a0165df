"""Predictions of rows by a candidate that is fitted once more, without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance

from ..._core.graphs import deepcopy
from ...regulariser.conditioning import conditioned
from ...regulariser.evidence_fit import EvidenceFit
from ...regulariser.plain_evidence import exact_predictions, sparse_predictions
from .gaussian import GaussianCandidates
from .gaussian_candidate import GaussianCandidate


def predict_without(
    tried: GaussianCandidates,
    candidate: GaussianCandidate,
    given: AnyNDArray,
    held: AnyNDArray,
    means: AnyNDArray,
) -> MeanAndVariance:
    """Return mean and variance of held observations, noise included: [B, J] each.

    Hyper-parameters start where those of all rows are.

    :param given: the rows to fit to, [n].
    :param held: the rows to predict, [B].
    :param means: predictions at all rows by models that have seen neither the row nor those held:
        [N, C, J].
    """
    P, data, settings = candidate.regulariser, tried.data, tried.settings
    pattern, M = candidate.pattern, candidate.num_points
    variance = P.likelihood.variance if pattern is None else P.likelihood.variance.variance
    fit = tried.evidence_fit_of(P.prior.kernel, deepcopy(tried.likelihood), is_exact=M is None)
    rows = tried.rows(data, means if candidate.is_around else None, pattern)
    first = rows.some(given[: settings.max_rows])
    which = {
        "means": candidate.is_around and tried.fits_weights,
        "pattern": pattern is not None,
    }
    with fit.lock:
        weights = candidate.weights if candidate.is_around else None
        fit.start(P.prior.kernel, variance, weights, candidate.exponent)
        Z = first.X
        if M is not None:
            Z, _ = settings.select(first.X, M, kernel=fit.prior.kernel, seed=data.seed)
        fit.minimise(settings.again(data.D, len(data.X)), Z, first, **which)
        of_means = np.sum(fit.weights.numpy() * rows.means, axis=1)  # [N, J]
        noise = fit.variance.numpy() * rows.pattern ** fit.exponent.numpy()
        noise = noise if pattern is None else np.clip(noise, *tried.bounds_of_noise)
        observed = np.asarray(rows.X[given]), noise[given], rows.Y[given] - of_means[given]
        num_points = tried.points.of_all(len(given), M)
        mean, variance = _predicted(tried, fit, num_points, observed, np.asarray(rows.X[held]))
        return mean + of_means[held], variance + noise[held]


def _predicted(
    tried: GaussianCandidates,
    fit: EvidenceFit,
    num_points: int,
    observed: tuple[AnyNDArray, AnyNDArray, AnyNDArray],
    new: AnyNDArray,
) -> Any:
    """Return mean and variance of f at new rows, as P will be conditioned in the end.

    :param observed: rows, their noise variances, and what the means leave of Y.
    """
    X, noise, residual = observed
    kernel, found = fit.prior.kernel, None
    if len(X) <= num_points:
        found = exact_predictions(kernel, *observed, new)
    if found is not None:
        return found
    Z, _ = tried.settings.select(X, num_points, kernel=kernel, seed=tried.data.seed)
    found = sparse_predictions(kernel, Z, *observed, new)
    if found is not None:
        return found
    posterior = conditioned(fit.prior, Z, [(X, residual, noise)])
    return tuple(part.numpy() for part in posterior.predict(new))

"""Predictions of few rows by hyper-parameters that were fitted without them.

Hyper-parameters for each feature that were fitted to few rows explain each of them. Left out of
the posterior alone, a row is predicted with a certainty that new rows do not confirm, so that its
density speaks for such a kernel, and the factor of tempering is too small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...regulariser.conditioning import conditioned
from ...regulariser.evidence_fit import EvidenceFit, Rows
from ...regulariser.fit import LeftOut

NUM_FOLDS = 5
"""Into which the rows are parted."""


def left_out_by_folds(fit: EvidenceFit, rows: Rows, anew: Callable[[Rows], None]) -> LeftOut:
    """Return predictions of rows of each fold by what is fitted to the others.

    :param fit: the fit, which is changed.
    :param rows: all rows, shuffled.
    :param anew: fits hyper-parameters anew to the rows that it is given.
    """
    fold = np.arange(len(rows.X)) % NUM_FOLDS
    mean, variance = np.empty_like(rows.Y), np.empty_like(rows.Y)
    for k in np.unique(fold):
        given, held = fold != k, fold == k
        part = rows.some(given)
        anew(part)
        of_means = np.sum(fit.weights.numpy() * rows.means, axis=1)  # [N, J]
        noise = fit.variance.numpy() * rows.pattern ** fit.exponent.numpy()  # [N, J]
        observed = part.X, part.Y - of_means[given], noise[given]
        posterior = conditioned(fit.prior, part.X, [observed])
        mean[held] = posterior.mean(rows.X[held]) + of_means[held]
        variance[held] = posterior.variance(rows.X[held]) + noise[held]
    return LeftOut(mean, variance)

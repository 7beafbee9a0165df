"""Few rows are judged by hyper-parameters that have not seen them."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.stats
from sklearn.datasets import make_friedman1

import gpflow_gvi as gvi
from gpflow_gvi.learning.candidates.few_rows import NUM_FOLDS, left_out_by_folds
from gpflow_gvi.learning.candidates.kept_fits import evidence_fit
from gpflow_gvi.regulariser.evidence import InducingEvidence
from gpflow_gvi.regulariser.evidence_fit import Rows
from tests.tolerances import ITERATIVE, assert_close


def test_each_fold_is_predicted_by_an_exact_process_of_the_others(rng):
    N, noise = 13, 0.05
    X, F = rng.normal(size=(N, 2)), rng.normal(size=(N, 1))
    Y = np.sin(X[:, :1]) + 0.5 * F
    kernel = gpflow.kernels.Matern32(lengthscales=[0.7, 1.5])
    fit = evidence_fit(kernel, gpflow.likelihoods.Gaussian(0.1), (1, 2, 1), InducingEvidence())
    seen = []

    def anew(part: Rows) -> None:
        """Know the hyper-parameters."""
        fit.start(kernel, noise, 0.5, 0.0)
        seen.append(part.X)

    rows = Rows(X, Y, F[:, None], np.ones_like(Y))
    mean, variance = left_out_by_folds(fit, rows, anew)
    for k, given in enumerate(seen):
        held = np.arange(N) % NUM_FOLDS == k
        np.testing.assert_array_equal(given, X[~held])
        exact = gpflow.models.GPR((X[~held], (Y - 0.5 * F)[~held]), kernel, noise_variance=noise)
        of_exact = exact.predict_y(X[held])
        assert_close(mean[held], of_exact[0] + 0.5 * F[held], ITERATIVE)
        assert_close(variance[held], of_exact[1], ITERATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_of_twenty_rows_in_ten_dimensions_it_is_not_certain(seed):
    """It is hardly worse than the distribution of Y, by which a row is predicted without inputs."""
    X, Y = make_friedman1(520, 10, noise=1.0, random_state=seed)
    Y = ((Y - np.mean(Y)) / np.std(Y))[:, None]
    learned = gvi.learn((X[:20], Y[:20]))
    nll = -np.mean(learned.predict_log_density((X[20:], Y[20:])))
    assert nll < scipy.stats.norm().entropy() + 0.5


def test_of_few_rows_it_is_saved_and_loaded(tmp_path, rng):
    X = rng.normal(size=(14, 4))
    learned = gvi.learn((X, X[:, :1] + 0.1), kernel=gpflow.kernels.SquaredExponential())
    assert learned.regulariser.left_out is not None
    gvi.save(learned, tmp_path / "learned")
    loaded = gvi.load(tmp_path / "learned")
    for part, of_loaded in zip(learned.predict_y(X), loaded.predict_y(X), strict=True):
        assert_close(part, of_loaded)

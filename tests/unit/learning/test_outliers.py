"""Rows that say nothing of the function are found, and no others; densities against scipy."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy import stats

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.learning import outliers
from gpflow_gvi.learning.settings import RegulariserSettings
from tests.tolerances import ITERATIVE, assert_close


def _curve(fraction, N=150, seed=0):
    """A curve with noise, the same with outliers, and which rows are some."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(N, 1))
    Y = _truth(X) + 10.0 * rng.normal(size=(N, 1))
    are = rng.uniform(size=N) < fraction
    moved = Y + 1000.0 * rng.normal(size=(N, 1))
    return X, Y, np.where(are[:, None], moved, Y), np.flatnonzero(are)


def _truth(X):
    return 500.0 + 100.0 * (np.sin(4.0 * np.pi * X) + 2.0 * X)


def test_density_is_that_of_a_mixture_with_a_uniform_law():
    likelihood = outliers.Contaminated(np.array([20.0]))
    likelihood.variance.assign(0.3)
    likelihood.fraction.assign(0.2)
    f, y = np.array([[0.0], [1.0], [-2.0]]), np.array([[0.5], [9.0], [-2.0]])
    near = 0.8 * stats.norm.pdf(y, f, np.sqrt(0.3))
    expected = np.log(near + 0.2 * stats.uniform.pdf(y, -10.0, 20.0))[:, 0]
    assert_close(likelihood.log_prob(f, f, y), expected)
    near = 0.8 * stats.norm.pdf(y, f, np.sqrt(0.3 + 0.4))
    probability = likelihood.probability(f, np.full((3, 1), 0.4), y)
    assert_close(probability, 0.01 / (near + 0.01))


@pytest.mark.slow
def test_gross_outliers_are_found():
    X, _, Y, rows = _curve(0.3)
    found = outliers.find((X, Y), RegulariserSettings(), seed=0)
    assert len(np.setxor1d(found.rows, rows)) <= 3  # some moved rows happen to stay near
    assert 0.2 < found.fraction < 0.4
    assert np.all(found.probability > 0.5)


@pytest.mark.slow
def test_robust_learning_is_as_good_as_without_outliers():
    X, clean, Y, rows = _curve(0.3)
    at = np.linspace(0.02, 0.98, 200)[:, None]
    rmse = {}
    for name, values, loss in (("clean", clean, None), ("robust", Y, "robust"), ("log", Y, None)):
        learned = gvi.learn((X, values), loss=loss)
        rmse[name] = np.sqrt(np.mean(np.square(learned.predict_y(at)[0] - _truth(at))))
        assert (learned.outliers is not None) == (loss == "robust")
    assert rmse["robust"] < 1.1 * rmse["clean"] * np.sqrt(len(X) / (len(X) - len(rows)))
    assert rmse["log"] > 3.0 * rmse["clean"]


@pytest.mark.slow
def test_without_outliers_nothing_changes(tmp_path):
    X, Y, _, _ = _curve(0.0)
    robust, plain = (gvi.learn((X, Y), loss=loss) for loss in ("robust", None))
    assert len(robust.outliers.rows) == 0
    assert_close(robust.predict_y(X), plain.predict_y(X), ITERATIVE)
    robust.save(tmp_path / "model")
    assert gvi.load(tmp_path / "model").outliers.fraction == robust.outliers.fraction


def test_rows_have_the_numbers_that_they_were_given_with():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    y[[30, 50, 70]] += 20.0
    y[:10] = np.nan
    learned = gvi.learn((X, y), loss="robust", missing="ignore", effort="fast")
    np.testing.assert_array_equal(learned.outliers.rows, [30, 50, 70])


@pytest.mark.filterwarnings("error::gpflow_gvi.errors.NumericsWarning")
def test_a_gross_value_is_named_by_the_row_that_it_was_given_in():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)
    y[50], y[:10] = 1e5, np.nan
    Y = np.c_[y, np.where(np.arange(2000) % 7 == 2, np.nan, np.cos(X[:, 0]))]
    weights = np.where(np.isin(np.arange(2000), [20, 22]), 0.0, 1.0)
    options = {"missing": "ignore", "effort": "fast"}
    for learn in (
        lambda: gvi.learn((X, y), **options),
        lambda: gvi.learn((X, y), sample_weight=weights, **options),
        lambda: gvi.GVIRegressor(**options).fit(X, y, sample_weight=weights),
        lambda: gvi.learn((X, Y), **options),
    ):
        with pytest.raises(NumericsWarning, match=r"first .* in row 50\."):
            learn()


def test_what_is_wrong_is_said():
    X, Y, _, _ = _curve(0.0, N=20)
    with pytest.raises(ValueError, match="loss is 'huber'"):
        gvi.learn((X, Y), loss="huber")
    with pytest.raises(TypeError, match=r"loss='robust' is for real-valued Y.*StudentT"):
        gvi.learn((X, np.abs(np.round(Y))), likelihood=gpflow.likelihoods.Poisson(), loss="robust")

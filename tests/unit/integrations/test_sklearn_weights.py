"""Weights of rows and of classes: against formulas in NumPy, and rows that are there twice."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons

import gpflow_gvi as gvi
from tests.tolerances import ITERATIVE, assert_close

QUICK = {"effort": "fast", "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 1))
    weights = rng.choice([1.0, 25.0], 60)
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=60) / np.sqrt(weights), weights


@pytest.fixture(scope="module")
def weighted(data):
    X, y, weights = data
    return gvi.GVIRegressor(**QUICK).fit(X, y, sample_weight=weights)


@pytest.mark.slow
def test_rows_have_noise_over_their_weight(data, weighted):
    """The posterior mean is the textbook's, with σ²/w on the diagonal."""
    X, y, weights = data
    learned = weighted.learned_
    kernel = learned.regulariser.prior.kernel
    noise = float(learned.regulariser.likelihood.variance.numpy()) * np.mean(weights) / weights
    Z, z = (learned.inputs.standard(rows).numpy() for rows in (X, X[:7] + 0.05))
    residual = learned.outputs.standard(y[:, None]).numpy()
    K = kernel(Z, Z).numpy() + np.diag(noise)
    expected = learned.outputs.original(kernel(z, Z).numpy() @ np.linalg.solve(K, residual))
    assert_close(weighted.predict(X[:7] + 0.05), np.asarray(expected)[:, 0], ITERATIVE)


def test_only_ratios_count_and_rows_of_weight_zero_do_not(data, weighted):
    X, y, weights = data
    X, y = np.r_[X, [[0.3], [0.4]]], np.r_[y, 50.0, -50.0]
    other = gvi.GVIRegressor(**QUICK).fit(X, y, sample_weight=[*(3.0 * weights), 0.0, 0.0])
    assert_close(other.predict(X), weighted.predict(X), ITERATIVE)


@pytest.mark.slow
def test_a_label_of_weight_two_is_there_twice():
    X, y = make_moons(60, noise=0.3, random_state=0)
    counts = np.arange(60) % 3
    own = gvi.GVIClassifier(**QUICK).fit(X, y, sample_weight=counts)
    twice = gvi.GVIClassifier(**QUICK).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert_close(own.predict_proba(X), twice.predict_proba(X), ITERATIVE)


@pytest.mark.slow
def test_balanced_classes_are_those_of_equal_frequencies():
    """Where classes overlap wholly, weights make up for frequencies of 1 to 4."""
    X, y = make_blobs([160, 40], centers=[[0.0], [0.0]], random_state=0)
    plain = gvi.GVIClassifier(**QUICK).fit(X, y).predict_proba(X)
    balanced = gvi.GVIClassifier(class_weight="balanced", **QUICK).fit(X, y).predict_proba(X)
    assert abs(plain[:, 0].mean() - 0.8) < 0.05
    assert abs(balanced[:, 0].mean() - 0.5) < 0.05
    assert_close(balanced.sum(axis=1), 1.0)
    odds = (balanced[:, 1] / balanced[:, 0]) / (plain[:, 1] / plain[:, 0])
    assert_close(odds, np.full(200, 4.0), ITERATIVE)


@pytest.mark.slow
def test_weights_of_classes_are_those_of_the_fit():
    X, y = make_moons(40, noise=0.3, random_state=0)
    model = gvi.GVIClassifier(**QUICK).fit(X, y)
    expected = model.predict_proba(X)
    found = model.set_params(class_weight={0: 1.0, 1: 9.0}).predict_proba(X)
    assert_close(found, expected)


@pytest.mark.parametrize("weight", [-1.0, 0.0, np.nan])
def test_weights_of_classes_are_positive(weight):
    X, y = make_moons(60, noise=0.3, random_state=0)
    with pytest.raises(ValueError, match=r"class_weight is .* must be positive"):
        gvi.GVIClassifier(class_weight={0: weight, 1: 5.0}, **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "weights", "message"),
    [
        (gvi.GVIRegressor(noise="varying"), np.ones(60), "noise is 'varying', which is not for"),
        (gvi.GVIRegressor(epochs=2), np.ones(60), "epochs is 2, which is not for rows"),
        (gvi.GVIRegressor(), np.full(60, -1.0), "Negative values"),
        (gvi.GVIRegressor(), np.ones(3), "sample_weight"),
        (gvi.GVIClassifier(), np.full(60, 0.5), "it must be whole numbers"),
    ],
)
def test_refused_weights(estimator, weights, message):
    X, y = make_moons(60, noise=0.3, random_state=0)
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y, sample_weight=weights)


def test_learn_refuses_weights_that_are_none(data):
    X, y, _ = data
    for weights in (np.zeros(60), -np.ones(60), np.full(60, np.nan), np.ones(59), ["a"] * 60):
        with pytest.raises(ValueError, match=r"must be a number for each of the 60 rows.*zero"):
            gvi.learn((X, y), sample_weight=weights)


@pytest.mark.slow
def test_weights_are_those_of_all_rows_though_y_is_missing_in_some(data):
    X, y, weights = data
    holes = np.where(np.arange(60) % 12 == 3, np.nan, y)
    weights = np.where(np.arange(60) == 20, 0.0, weights)
    used = ~np.isnan(holes) & (weights > 0.0)
    expected = gvi.learn((X[used], y[used]), sample_weight=weights[used], effort="fast")
    options = {"missing": "ignore", "sample_weight": weights, "effort": "fast"}
    for given in (holes, np.ma.masked_invalid(holes), list(holes)):
        assert_close(gvi.learn((X, given), **options).predict(X), expected.predict(X), ITERATIVE)
    estimators = [gvi.GVIRegressor(missing=missing, **QUICK) for missing in ("refuse", "ignore")]
    estimators[0].fit(X[used], y[used], sample_weight=weights[used])
    estimators[1].fit(X, holes, sample_weight=weights)
    assert_close(estimators[1].predict(X), estimators[0].predict(X), ITERATIVE)


@pytest.mark.parametrize("asked", [{"outputs": "correlated"}, {"missing": "ignore"}])
def test_outputs_that_are_learned_together_have_no_weights(asked, data):
    X, y, weights = data
    Y = np.column_stack([y, np.where(np.arange(60) == 3, np.nan if "missing" in asked else 0.0, y)])
    [(name, value)] = asked.items()
    with pytest.raises(ValueError, match=f"{name} is '{value}', which is not for rows of diff"):
        gvi.GVIRegressor(**asked).fit(X, Y, sample_weight=weights)

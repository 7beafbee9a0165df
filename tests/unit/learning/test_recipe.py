"""The recipe's predictors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpflow.kernels import SquaredExponential
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

import gpflow_gvi as gvi
from gpflow_gvi.kernels import AdditiveSpectralMixture, LogInputs
from gpflow_gvi.learning.default_predictors import Classifiers, Regressors
from gpflow_gvi.learning.recipe import Recipe
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.start import TrainingData
from gpflow_gvi.learning.starts import variance_of_slopes
from tests.tolerances import ITERATIVE, assert_close


def _rows_of_noise(N: int, rng: np.random.Generator, D: int = 2) -> TrainingData:
    X, Y = rng.normal(size=(N, D)), rng.integers(2, size=(N, 1)).astype(float)
    return TrainingData(X, Y, Y, 0, (2,), False, (Scaling.none(X), Scaling.none(Y)))


@pytest.mark.parametrize("kind", [Regressors, Classifiers])
@pytest.mark.parametrize("N", [200, 4_000, 15_000])
def test_randomised_trees_fit_noise_with_a_bounded_number_of_leaves(kind, N, rng):
    """They are kept for each fold, and saved; of few rows each leaf has one label."""
    data = _rows_of_noise(N, rng)
    found = [each for each in kind(data, Recipe()).trees() if hasattr(each, "n_estimators")]
    assert found
    for trees in found:
        assert is_classifier(trees) == (kind is Classifiers)
        tree = trees.set_params(n_estimators=1).fit(data.X, data.Y[:, 0]).estimators_[0]
        assert tree.get_n_leaves() <= 1.5 * Recipe().max_leaves
        if Recipe().max_leaves >= N:
            np.testing.assert_array_equal(tree.predict(data.X), data.Y[:, 0])


def test_of_many_rows_trees_are_boosted_alone(rng):
    for kind in (Regressors, Classifiers):
        (boosting,) = kind(_rows_of_noise(30_000, rng), Recipe()).trees()
        assert not hasattr(boosting, "n_estimators")


@pytest.mark.parametrize("D", [100, 101])
def test_no_kernel_of_many_features_evaluates_each_of_them_for_all_pairs_of_rows(D, rng):
    found = Recipe().kernels_of_numbers(rng.normal(size=(30, D)), rng.normal(size=(30, 1)))
    terms = [term for kernel in found for term in getattr(kernel, "kernels", [kernel])]
    assert any(isinstance(term, AdditiveSpectralMixture) for term in terms) == (D == 100)
    assert any(isinstance(term, SquaredExponential) for term in terms)


def test_skewed_positive_columns_are_tried_as_logarithms(rng):
    original = np.c_[
        rng.lognormal(size=300),  # skewed
        rng.lognormal(size=300) - 1.0,  # of which some are negative
        5.0 + rng.normal(size=300).clip(-2.0, 2.0),  # not skewed
        np.exp(rng.lognormal(size=300).clip(0.0, 5.0) * -1.0),  # whose logarithms are more skewed
        rng.integers(0, 2, size=300),
    ]
    units = Scaling.of(original), Scaling.none(original[:, :1])
    X = np.asarray(units[0].standard(original))
    data = TrainingData(X, X[:, :1], X[:, :1], 0, (5,), False, units)
    kernels = Recipe().kernels(data)
    of_logs = [kernel for kernel in kernels if isinstance(kernel, LogInputs)]
    assert len(kernels) == 2 * len(of_logs)
    for kernel in of_logs:
        assert kernel.is_log.tolist() == [True, False, False, False, False]
        logs = np.log(original[:, 0])
        assert_close(kernel.features(X)[:, 0], (logs - logs.mean()) / logs.std(), ITERATIVE)


@pytest.mark.parametrize(("N", "D", "count"), [(999, 2, 0), (1_000, 2, 1), (1_000, 1, 0)])
def test_of_many_rows_of_several_features_there_is_a_network(N, D, count, rng):
    data = _rows_of_noise(N, rng, D)
    kinds = {False: TransformedTargetRegressor, True: Pipeline}
    for of_classes, kind in kinds.items():
        found = Recipe().predictors(dataclasses.replace(data, of_classes=of_classes))
        assert len([each for each in found if isinstance(each, kind)]) == count


def test_there_are_no_classifiers_for_labels_in_several_columns(rng):
    data = dataclasses.replace(_rows_of_noise(200, rng, 2), of_classes=True)
    assert Recipe().predictors(data)
    assert not Recipe().predictors(dataclasses.replace(data, Y=np.hstack([data.Y, data.Y])))


def _spoilt(data):
    """The same rows with a column of one value, and a copy of a column in another unit."""
    X = np.c_[np.full(len(data.X), 3.0), data.X[:, :1], data.X]
    return dataclasses.replace(data, X=X, units=(Scaling.none(X), data.units[1]))


@pytest.mark.slow
@pytest.mark.parametrize("of_classes", [False, True])
@pytest.mark.parametrize("D", [1, 2])
def test_constant_columns_and_copies_do_not_change_what_is_tried(D, of_classes, rng):
    data = dataclasses.replace(_rows_of_noise(200, rng, D), of_classes=of_classes)
    spoilt, recipe = _spoilt(data), Recipe()
    assert spoilt.features.tolist() == [1, 3][:D]
    for method in ("kernels", "kernels_of_series", "floor"):
        pairs = zip(getattr(recipe, method)(data), getattr(recipe, method)(spoilt), strict=True)
        for kernel, same in pairs:
            assert_close(same(spoilt.X), kernel(data.X))
    for plain, same in zip(recipe.predictors(data), recipe.predictors(spoilt), strict=True):
        y = data.Y[:, 0]
        expected = plain.fit(data.X, y).predict(data.X)
        np.testing.assert_array_equal(same.fit(spoilt.X, y).predict(spoilt.X), expected)


@pytest.mark.parametrize("difference", [1e-11, 1e-3])
def test_columns_that_differ_by_rounding_have_the_slopes_of_copies(difference, rng):
    X, Y = rng.normal(size=(50, 3)), rng.normal(size=(50, 1))
    copied, other = X[:, [0, 1, 2, 0]], X[:, [0, 1, 2, 0]]
    other[:, 3] += difference * rng.normal(size=50)
    slopes, *_ = np.linalg.lstsq(copied if difference < 1e-6 else other, Y, rcond=None)
    assert_close(variance_of_slopes(other, Y), np.mean(slopes**2), precision=np.float32)


@pytest.mark.slow
def test_labels_are_learned_from_columns_that_differ_by_rounding(rng):
    X = rng.normal(size=(150, 4))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=150) > 0.0
    other = np.column_stack([X, X[:, 0] + 1e-11 * rng.normal(size=150)])
    classifier = gvi.GVIClassifier(effort="fast", random_state=0).fit(other[:100], y[:100])
    assert classifier.score(other[100:], y[100:]) > 0.8


def test_of_a_single_feature_there_are_boosted_trees_alone(rng):
    (found,) = Recipe().predictors(_rows_of_noise(1_000, rng, 1))
    assert type(found).__name__ == "HistGradientBoostingRegressor"


def test_a_network_does_not_depend_on_units(rng):
    X, f = rng.normal(size=(1_000, 2)), lambda X: np.sin(2.0 * X[:, 0]) * X[:, 1]
    data = TrainingData(X, *2 * [f(X)[:, None]], 0, (2,), False, ())
    (network,) = Regressors(data, Recipe()).networks()
    scales = np.array([1e3, 1e-4])
    network.fit(X * scales, 1e5 + 1e2 * f(X))
    rows = rng.normal(size=(500, 2))
    error = (network.predict(rows * scales) - 1e5) / 1e2 - f(rows)
    assert np.sqrt(np.mean(np.square(error))) < 0.3 * np.std(f(rows))


@pytest.mark.parametrize("N", [1_000, 6_000])
def test_a_class_of_few_rows_is_learned(N, rng):
    """A fold may leave it one row, by which no training can be stopped early."""
    data = _rows_of_noise(N, rng)
    labels = np.zeros(N, int)
    labels[0] = 1
    rare = TrainingData(**vars(data) | {"Y": labels[:, None]})
    found = Classifiers(rare, Recipe()).trees()
    boosting = [each for each in found if not hasattr(each, "n_estimators")]
    for classifier in boosting:
        assert classifier.set_params(max_iter=2).fit(data.X, labels).predict_proba(data.X).shape


def test_labels_of_many_features_start_from_those_that_tell_them(rng):
    X = rng.normal(size=(150, 14))
    Y = (X[:, [3]] + 0.3 * rng.normal(size=(150, 1)) > 0.0).astype(float)
    data = TrainingData(X, Y, Y, 0, (14,), True, (Scaling.none(X), Scaling.none(Y)))
    parts = [part for kernel in Recipe().kernels(data) for part in kernel.kernels]
    (of_each,) = [part for part in parts if getattr(part, "ard", False)]
    assert np.argmin(of_each.lengthscales) == 3


def test_rows_of_labels_that_repeat_allow_for_no_more_lengthscales(rng):
    X = rng.normal(size=(70, 4))
    of_each = []
    for rows in (X, np.repeat(X, 2, axis=0), rng.normal(size=(140, 4))):
        Y = rng.integers(2, size=(len(rows), 1)).astype(float)
        data = TrainingData(rows, Y, Y, 0, (4,), True, (Scaling.none(rows), Scaling.none(Y)))
        parts = [part for kernel in Recipe().kernels(data) for part in kernel.kernels]
        of_each.append(any(getattr(part, "ard", False) for part in parts))
    assert of_each == [False, False, True]


@pytest.mark.parametrize("effort", ["fast", pytest.param("default", marks=pytest.mark.slow)])
def test_a_trend_goes_on_where_there_are_no_rows(effort, rng):
    """Smooth functions alone would return to the mean of y, with less doubt than they are wrong."""

    def f(X):
        return 2.0 * X[:, :1] + np.sin(3.0 * X[:, 1:])

    X = rng.uniform(-2.0, 2.0, size=(120, 2))
    learned = gvi.learn((X, f(X) + 0.1 * rng.normal(size=(120, 1))), effort=effort)
    far = np.array([[8.0, 0.0], [-8.0, 1.0], [8.0, -1.0]])
    mean, variance = learned.predict_y(far)
    error = np.abs(mean - f(far))
    assert np.all(error < 0.1 * np.abs(f(far)))
    assert np.all(error < 3.0 * np.sqrt(variance))

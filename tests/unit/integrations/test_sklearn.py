"""The estimators of scikit-learn: its own checks, its own models as peers, and its own tools."""

from __future__ import annotations

import inspect
from unittest import mock

import gpflow
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1, make_moons
from sklearn.dummy import DummyRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    parametrize_with_checks,
)

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.integrations import estimator_base
from tests.tolerances import ITERATIVE, STANDARD_ERRORS, assert_close, assert_estimates

QUICK = {"num_inducing": 8, "effort": "fast", "random_state": 0}


FIT_LITTLE = (
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_array",
    "check_estimators_empty_data_messages",
    "check_estimators_overwrite_params",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_supervised_y_no_nan",
    "check_valid_tag_types",
)
"""The checks that fit at most once: the others, of forty fits each in all, are slow."""


FIT_ONCE_OF_TWO = [("check_estimators_overwrite_params", gvi.GVIClassifier)]
"""Checks of code that both estimators share, which fit once: slow of the one named."""


NOT_PROMISED = ("check_sample_weight_equivalence_on_dense_data",)
"""A row of weight two is not the row twice: copies count once, and folds depend on the order."""


def _name(check):
    return getattr(check, "func", check).__name__


def _fits_little(estimator, check):
    name = _name(check)
    return name in FIT_LITTLE and (name, type(estimator)) not in FIT_ONCE_OF_TWO


def _checks():
    """scikit-learn's checks, most of them slow."""
    all_of_them = parametrize_with_checks([gvi.GVIRegressor(), gvi.GVIClassifier()])
    names, cases = all_of_them.args
    cases = [
        pytest.param(*case, marks=() if _fits_little(*case) else pytest.mark.slow)
        for case in cases
        if _name(case[1]) not in NOT_PROMISED
    ]
    return pytest.mark.parametrize(names, cases, **all_of_them.kwargs)


@_checks()
def test_sklearn_checks(estimator, check):
    if _fits_little(estimator, check):
        estimator = clone(estimator).set_params(effort="fast")
    check(estimator)


@pytest.fixture(scope="module")
def curve():
    rng = np.random.default_rng(0)
    X = rng.uniform(100.0, 106.0, size=(60, 1))  # far from standard units
    return X, 1e4 * (3.0 + np.sin(X[:, 0] - 100.0) + 0.1 * rng.normal(size=60))


@pytest.fixture(scope="module")
def regressor(curve):
    return gvi.GVIRegressor(**QUICK, noise="constant").fit(*curve)  # Gaussian predictions


@pytest.fixture(scope="module")
def several(curve):
    """Two outputs with a constant one between them."""
    X, y = curve
    with pytest.warns(NumericsWarning, match="constant in 1 of 3 columns"):
        return gvi.GVIRegressor(**QUICK, kernel=gpflow.kernels.SquaredExponential()).fit(
            X, np.column_stack([y, np.full_like(y, 0.1), -0.01 * y])
        )


@pytest.fixture(scope="module")
def moons():
    return make_moons(800, noise=0.25, random_state=0)


@pytest.fixture(scope="module")
def classifier(moons):
    X, y = moons
    labels = np.array(["upper", "lower"])[y]  # whose order is another one
    return gvi.GVIClassifier(
        calibration_fraction=0.2, num_inducing=30, effort="fast", random_state=0
    ).fit(X[:400], labels[:400])


@pytest.fixture
def arguments(monkeypatch):
    """What `learn` is called with, in place of learning."""
    calls: dict[str, object] = {}
    monkeypatch.setattr(estimator_base, "learn", lambda data, **options: calls.update(options))
    return calls


def test_predictions_are_those_of_the_learned_model(regressor, curve):
    X, y = curve
    mean, std = regressor.predict(X, return_std=True)
    expected, variance = regressor.learned_.predict_y(X)
    assert mean.shape == std.shape == y.shape
    for again in (expected[:, 0], regressor.predict(X)):  # the first call has no graph
        assert_close(again, mean)
    assert_close(std**2, variance[:, 0])
    assert_close(regressor.predict_interval(X, 0.8), scipy.stats.norm.interval(0.8, mean, std))


@pytest.mark.slow
def test_learned_model_is_that_of_learn(regressor, curve):
    X, y = curve
    seed = np.random.RandomState(0).randint(2**31 - 1)
    learned = gvi.learn((X, y), num_inducing=8, effort="fast", seed=seed)
    for predict in (regressor.predict, learned.predict_y):
        predict(X)  # from the second call on factors are computed in advance
    assert_close(regressor.predict(X), learned.predict_y(X)[0][:, 0])


def test_several_outputs_one_of_them_constant(several, regressor, curve):
    X, y = curve
    mean, std = several.predict(X, return_std=True)
    lower, upper = several.predict_interval(X)
    assert mean.shape == std.shape == lower.shape == upper.shape == (60, 3)
    for column in (mean[:, 1], lower[:, 1], upper[:, 1]):
        np.testing.assert_array_equal(column, 0.1)
    np.testing.assert_array_equal(std[:, 1], 0.0)
    assert_close(mean[:, 2], -0.01 * mean[:, 0])
    assert_close(std[:, 2], 0.01 * std[:, 0], ITERATIVE)
    assert_estimates(mean[:, 0], y, std[:, 0])
    assert np.all(upper[:, ::2] > lower[:, ::2])


@pytest.mark.parametrize("X", [[[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
def test_constant_targets_are_predicted_as_they_are(X):
    with pytest.warns(NumericsWarning, match="y is constant in 1 of 1 columns"):
        fitted = gvi.GVIRegressor().fit(X, np.full(len(X), 0.3))
    mean, std = fitted.predict([[9.0, 9.0]], return_std=True)
    assert (mean, std) == (0.3, 0.0)
    assert fitted.learned_ is None
    np.testing.assert_array_equal(fitted.sample_y([[9.0, 9.0]], 4), [[0.3] * 4])


def test_samples_have_the_shape_of_sklearn_and_the_moments_of_y(regressor, several, curve):
    X = curve[0][:4]
    for fitted in (regressor, several):
        Y = fitted.predict(curve[0])
        peer = GaussianProcessRegressor().fit(curve[0], Y)
        assert fitted.sample_y(X, 5).shape == peer.sample_y(X, 5).shape
    samples = regressor.sample_y(X, 20_000, random_state=1)
    mean, std = regressor.predict(X, return_std=True)
    again, covariance = regressor.predict(X, return_cov=True)
    assert_close(again, mean)
    assert_close(np.diag(covariance), std**2)
    assert_estimates(samples.mean(axis=1), mean, std / np.sqrt(20_000))
    error = np.sqrt((np.outer(std**2, std**2) + covariance**2) / 20_000)
    assert_estimates(np.cov(samples), covariance, error)
    np.testing.assert_array_equal(regressor.sample_y(X, 2), regressor.sample_y(X, 2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_regression_is_as_good_as_a_gaussian_process_of_sklearn():
    X, y = make_friedman1(600, noise=1.0, random_state=0)
    fitted = gvi.GVIRegressor(effort="fast", random_state=0).fit(X[:100], y[:100])
    kernel = RBF(np.full(10, 3.0), (0.1, 1e3)) + WhiteKernel(0.1)
    peer = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)).fit(
        X[:100], y[:100]
    )
    guess = DummyRegressor().fit(X[:100], y[:100])

    def nll(mean, std):
        return -scipy.stats.norm.logpdf(y[100:], mean, std).mean()

    ours = nll(*fitted.predict(X[100:], return_std=True))
    assert ours < nll(guess.predict(X[100:]), np.std(y[:100])) - 0.5
    assert ours < nll(*peer.predict(X[100:], return_std=True)) + 0.2
    assert fitted.score(X[100:], y[100:]) > peer.score(X[100:], y[100:]) - 0.05


@pytest.mark.slow
def test_classes_may_have_any_names(classifier, moons):
    X, y = moons
    labels = np.array(["upper", "lower"])[y]
    assert classifier.classes_.tolist() == ["lower", "upper"]
    p = classifier.predict_proba(X[400:])
    assert_close(p.sum(axis=1), 1.0)
    assert_close(p, classifier.learned_.predict_proba(X[400:]))
    np.testing.assert_array_equal(
        classifier.predict(X[400:]), np.where(p[:, 1] > p[:, 0], "upper", "lower")
    )
    line = LogisticRegression().fit(X[:400], labels[:400])  # what a line between them can do
    assert classifier.score(X[400:], labels[400:]) > line.score(X[400:], labels[400:])
    assert log_loss(labels[400:], p) < log_loss(labels[400:], line.predict_proba(X[400:]))
    sets = classifier.predict_set(X[400:], 0.8)
    covered = np.mean(sets[np.arange(400), 1 - y[400:]])  # more often, as no set is empty
    # Of 400 rows, by the quantile of 80 that were held out.
    assert covered > 0.8 - STANDARD_ERRORS * np.sqrt(0.8 * 0.2 / 400 + 0.8 * 0.2 / 80)
    assert np.mean(sets) < 0.6  # of classes, where one half is the least


@pytest.mark.slow
def test_classes_of_iris_are_learned():
    X, y = load_iris(return_X_y=True)
    scores = cross_val_score(gvi.GVIClassifier(random_state=0), X, y, cv=3)
    assert np.mean(scores) > 0.92  # where two of the classes are taken for one it is 0.67


def test_one_class_is_predicted_as_it_is():
    with pytest.warns(NumericsWarning, match="class 'only' alone"):
        fitted = gvi.GVIClassifier().fit(np.eye(3), ["only"] * 3)
    assert fitted.predict(np.eye(3)).tolist() == ["only"] * 3
    np.testing.assert_array_equal(fitted.predict_proba(np.eye(3)), np.ones((3, 1)))
    assert np.all(fitted.predict_set(np.eye(3)))


@pytest.mark.parametrize("which", ["regressor", "several", "classifier"])
def test_saved_by_joblib_it_predicts_the_same(which, request, tmp_path):
    fitted = request.getfixturevalue(which)
    joblib.dump(fitted, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model")
    X = np.linspace(-1.0, 107.0, 7 * fitted.n_features_in_).reshape(7, -1)
    methods = ["predict", *(["predict_proba"] if which == "classifier" else [])]
    for method in methods:
        for model in (loaded, fitted):
            getattr(model, method)(X)  # from the second call on factors are computed in advance
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(fitted, method)(X))


def test_what_a_classifier_has_learned_keeps_the_names(classifier, tmp_path):
    classifier.learned_.save(tmp_path / "learned")
    X = np.linspace(-1.0, 107.0, 7 * classifier.n_features_in_).reshape(7, -1)
    loaded = gvi.load(tmp_path / "learned")
    np.testing.assert_array_equal(loaded.classes_, classifier.classes_)
    np.testing.assert_array_equal(loaded.predict(X), classifier.predict(X))


@pytest.mark.slow
def test_saved_by_joblib_with_a_trained_network(curve, tmp_path):
    fitted = gvi.GVIRegressor(network=5, epochs=2, **QUICK).fit(*curve)
    joblib.dump(fitted, tmp_path / "model")
    np.testing.assert_array_equal(
        joblib.load(tmp_path / "model").predict(curve[0]), fitted.predict(curve[0])
    )


@pytest.mark.slow
def test_a_search_over_the_weight_of_the_divergence(curve):
    weights = [1e-3, 10.0]
    search = GridSearchCV(
        gvi.GVIRegressor(epochs=2, learning_rate=0.03, **QUICK),
        {"divergence_weight": weights},
        cv=2,
    ).fit(*curve)
    assert search.best_params_["divergence_weight"] in weights
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] != scores[1]
    assert search.best_score_ == max(scores)


@pytest.mark.slow
def test_units_do_not_matter_in_a_pipeline(regressor, curve):
    X, y = curve
    pipeline = make_pipeline(StandardScaler(), clone(regressor)).fit(X, y)
    assert_close(pipeline.predict(X), regressor.predict(X), ITERATIVE)


@pytest.mark.parametrize(
    "estimator",
    [gvi.GVIRegressor(effort="fast"), pytest.param(gvi.GVIClassifier(), marks=pytest.mark.slow)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_names_of_features_are_kept(estimator):
    pytest.importorskip("pandas")
    check_dataframe_column_names_consistency(type(estimator).__name__, estimator)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"divergence_weight": 0.2, "batch_size": 7, "learning_rate": 0.1},
        {"divergence": gvi.divergences.ProjectedWasserstein(), "model": gvi.models.GWI},
        {"predictor": DummyRegressor(), "noise": "varying", "n_jobs": 2, "effort": "fast"},
        {"outputs": "correlated", "missing": "ignore"},
    ],
)
def test_a_regressor_hands_its_parameters_to_learn(options, arguments, rng):
    estimator = gvi.GVIRegressor(**options)
    estimator.fit(rng.normal(size=(60, 2)), np.arange(60))
    expected = estimator.get_params(deep=False) | options
    del expected["random_state"], arguments["seed"]
    assert arguments == expected


@pytest.fixture(scope="module")
def with_gaps():
    """Two outputs that are nearly the same but for units; a half-line of the first is missing."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(40, 1))
    Y = np.c_[np.sin(X), 5.0 + 20.0 * np.sin(X)] + [0.05, 1.0] * rng.normal(size=(40, 2))
    Y[X[:, 0] > 0.0, 0] = np.nan
    return X, Y


JOINT = {"kernel": gpflow.kernels.SquaredExponential(), "missing": "ignore", "random_state": 0}


@pytest.mark.slow
def test_outputs_with_gaps_are_learned_together_as_by_learn(with_gaps, tmp_path, monkeypatch):
    X, Y = with_gaps
    calls = mock.Mock(wraps=gvi.learn)  # it need not be learned once more
    monkeypatch.setattr("gpflow_gvi.integrations.estimator_base.learn", calls)
    fitted = clone(gvi.GVIRegressor(**JOINT, predictor=None)).fit(X, Y)
    calls.assert_called_once()
    (data,), options = calls.call_args
    for given, expected in zip(data, with_gaps, strict=True):
        np.testing.assert_array_equal(given, expected)
    assert options["missing"] == "ignore"
    assert options["seed"] == np.random.RandomState(0).randint(2**31 - 1)
    assert options.keys() <= inspect.signature(gvi.learn).parameters.keys()
    learned = fitted.learned_
    learned.predict_y(X)  # from the second call on factors are computed in advance
    mean, variance = learned.predict_y(X)
    found, std = fitted.predict(X, return_std=True)
    assert_close(found, mean)
    assert_close(std**2, variance)
    expected = [r2_score(Y[at, j], found[at, j]) for j, at in enumerate(~np.isnan(Y.T))]
    assert_close(fitted.score(X, Y), np.mean(expected))
    with pytest.raises(ValueError, match=r"y has shape \(2, 40\), but in fit it had 2 columns"):
        fitted.score(X, Y.T)
    joblib.dump(fitted, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model")
    for model in (loaded, fitted):
        model.predict(X)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


@pytest.mark.slow
def test_columns_with_gaps_may_be_constant(with_gaps):
    X, Y = with_gaps
    Y = np.column_stack([Y[:, 0], np.where(X[:, 0] > 1.0, np.nan, 0.1)])
    with pytest.warns(NumericsWarning, match="constant in 1 of 2 columns"):
        fitted = gvi.GVIRegressor(missing="ignore", **QUICK).fit(X, Y)
    alone = gvi.GVIRegressor(missing="ignore", **QUICK).fit(X, Y[:, 0])
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(mean[:, 1], 0.1)
    np.testing.assert_array_equal(std[:, 1], 0.0)
    assert_close(mean[:, 0], alone.predict(X))
    known = ~np.isnan(Y[:, 0])  # of a single column the rows with gaps are left out
    without = gvi.GVIRegressor(**QUICK).fit(X[known], Y[known, 0])
    assert_close(alone.predict(X), without.predict(X))
    assert_close(alone.score(X, Y[:, 0]), without.score(X[known], Y[known, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("gap", [np.nan, None, np.ma.masked])
def test_gaps_are_refused_unless_they_are_to_be_ignored(gap):
    X, y = np.arange(12.0)[:, None], np.ma.array(np.arange(12.0))
    if gap is None:
        y = y.filled().astype(object)
    y[3] = gap
    with pytest.raises(ValueError, match=r"\by\b"):
        gvi.GVIRegressor(**QUICK).fit(X, y)
    fitted = gvi.GVIRegressor(missing="ignore", **QUICK).fit(X, y)
    assert int(fitted.learned_.model.num_data) == 11
    y[4] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        gvi.GVIRegressor(missing="ignore", **QUICK).fit(X, y)


@pytest.mark.slow
def test_a_search_over_how_outputs_are_learned(with_gaps):
    choices = {"outputs": ["independent", "correlated"], "missing": ["ignore"]}
    X, Y = with_gaps
    search = GridSearchCV(gvi.GVIRegressor(**JOINT), choices, cv=2, error_score="raise").fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert np.all(np.isfinite(scores))
    assert search.best_score_ == max(scores)
    complete = Y[:, 1:].repeat(2, axis=1)  # without gaps the two are not the same
    search = GridSearchCV(gvi.GVIRegressor(**JOINT), choices, cv=2).fit(X, complete)
    assert np.ptp(search.cv_results_["mean_test_score"]) > 0.0


def test_kernels_and_networks_that_are_named(arguments, rng):
    X, Y = rng.normal(size=(40, 2)), rng.normal(size=(40, 3))
    gvi.GVIRegressor(network=7).fit(X, Y)
    assert arguments["network"](X).shape == (40, 3)
    assert arguments["network"].layers[0].units == 7
    kernels = [gpflow.kernels.Matern32(), gpflow.kernels.Matern52()]
    network = arguments["network"]
    gvi.GVIRegressor(kernel=kernels, network=network).fit(X, Y)
    assert arguments["kernel"] is kernels
    assert arguments["network"] is network


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"predictor": "rbf"}, "predictor is 'rbf'"),
        ({"noise": "much"}, "noise is 'much'"),
        ({"outputs": "some"}, "outputs is 'some'"),
        ({"missing": "some"}, "missing is 'some'"),
        ({"network": 0}, "network is 0"),
        ({"num_inducing": 0}, "num_inducing is 0"),
    ],
)
def test_bad_options_are_named_by_fit(options, words, curve):
    with pytest.raises(ValueError, match=words):
        gvi.GVIRegressor(**options).fit(*curve)


@pytest.mark.slow
def test_whole_numbers_of_numpy_are_those_of_python(regressor, curve):
    searched = {"num_inducing": np.arange(8, 9)[0]}
    model = clone(regressor).set_params(**searched).fit(*curve)
    for each in (model, regressor):  # later predictions are by kept factors, rounded otherwise
        each.predict(curve[0])
    np.testing.assert_array_equal(model.predict(curve[0]), regressor.predict(curve[0]))


@pytest.mark.parametrize(
    "bad", [None, np.nan, 1e400, 10**400, 1e200], ids=["None", "nan", "inf", "int", "huge"]
)
def test_a_y_of_objects_that_are_no_numbers_is_refused(bad):
    X = np.arange(12.0)[:, None]
    y = np.arange(12.0).astype(object)
    y[3] = bad
    with pytest.raises(ValueError, match=r"\by\b"):
        gvi.GVIRegressor().fit(X, y)
    y[3] = np.array([1.0])
    for kind in (gvi.GVIRegressor, gvi.GVIClassifier):
        with pytest.raises(TypeError, match=r"y has dtype object and at \[3\] array"):
            kind().fit(X, y)


def test_inputs_that_scikit_learn_takes_for_numbers_are_refused(regressor):
    X = np.arange(12.0)[:, None]
    with pytest.raises(ValueError, match="X is masked"):
        regressor.predict(np.ma.MaskedArray(X, mask=X == 3.0))
    with pytest.raises(TypeError, match="X has dtype datetime64"):
        regressor.predict(X.astype("datetime64[D]"))
    for text in ("abc", "y"):
        with pytest.raises(ValueError, match=f"X or y cannot be taken: .*'{text}'.*OneHotEncoder"):
            regressor.fit(np.full((12, 1), text), X[:, 0])
    with pytest.raises(ValueError, match="y is masked"):
        regressor.score(X, np.ma.MaskedArray(X, mask=X == 3.0))


def test_how_to_encode_is_said_of_values_that_are_no_numbers_alone(rng):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    table, twice = pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame(X, columns=["a", "a"])
    model = gvi.GVIRegressor(predictor=None, effort="fast").fit(table, y)
    for words, ask in {
        "X or y.* inconsistent": lambda: model.fit(X, y[:9]),
        "X or y.* 1D array": lambda: model.fit(X[:, 0], y),
        "X or y.* 0 sample": lambda: model.fit(X[:0], y[:0]),
        "X or y.* unique column": lambda: model.fit(twice, y),
        "weight.* Negative": lambda: model.fit(X, y, sample_weight=-np.ones(20)),
        "weight.* NaN": lambda: model.fit(X, y, sample_weight=np.full(20, np.nan)),
        "weight.* expected": lambda: model.fit(X, y, sample_weight=np.ones(3)),
        "y .*continuous": lambda: gvi.GVIClassifier().fit(X, y),
        "X .*same order": lambda: model.fit(table, y).predict(table[["b", "a"]]),
    }.items():
        with pytest.raises(ValueError, match=f"(?s){words}") as raised:
            ask()
        assert "must be numbers" not in str(raised.value)
    for column in ("red", pd.Categorical(["red"] * 20), pd.Period("2020-01")):
        with pytest.raises((TypeError, ValueError), match=r"(?s)X or y .*numbers: encode columns"):
            model.fit(table.assign(c=column), y)


@pytest.mark.slow
def test_images_with_a_network_that_is_trained(rng, tmp_path):
    keras = pytest.importorskip("keras")
    X, labels = rng.uniform(0.0, 0.5, size=(150, 4, 4, 1)), np.repeat(["dark", "light"], 75)
    X[75:] += 0.5
    net = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(4, "relu"),
            keras.layers.Dense(2),
        ]
    )
    net.compile(
        keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    net.fit(X, (labels == "light").astype(int), epochs=10, verbose=0)
    options = {"network": net, "train_network": False, "predictor": None}
    estimator = clone(gvi.GVIClassifier(**options, num_inducing=8, random_state=0))
    with pytest.warns(NumericsWarning, match="without validation_data"):
        estimator.fit(X, labels)
    expected = np.array(["dark", "light"])[net.predict(X, verbose=0).argmax(axis=1)]
    np.testing.assert_array_equal(estimator.predict(X), expected)
    joblib.dump(estimator, tmp_path / "estimator")
    loaded = joblib.load(tmp_path / "estimator")
    assert_close(loaded.predict_proba(X), estimator.predict_proba(X))
    with pytest.raises(ValueError, match=r"X has shape \(150, 4, 5, 1\)"):
        estimator.predict(np.pad(X, ((0, 0), (0, 0), (0, 1), (0, 0))))


def test_images_without_a_network_are_refused(rng):
    with pytest.raises(ValueError, match="dim 4"):
        gvi.GVIClassifier().fit(rng.uniform(size=(20, 4, 4, 1)), np.arange(20) % 2)

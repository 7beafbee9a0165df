"""The estimators within scikit-learn's own: pipelines, transformed targets, several outputs."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.stats
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import make_friedman1, make_moons
from sklearn.ensemble import StackingClassifier, StackingRegressor, VotingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

QUICK = {"num_inducing": 10, "effort": "fast", "random_state": 0}


def curve(count: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(-3.0, 3.0, size=count), rng.normal(size=count)])
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=count)


@pytest.fixture(scope="module")
def pipeline():
    X, y = curve()
    return make_pipeline(StandardScaler(), gvi.GVIRegressor(**QUICK, noise="constant")).fit(X, y)


@pytest.mark.slow
def test_a_pipeline_passes_on_what_is_asked_for(pipeline):
    X = curve()[0][:7]
    for options in ({}, {"return_interval": 0.8}):  # factors are kept from the second call on
        pipeline.predict(X, **options)
    mean, std = pipeline.predict(X, return_std=True)
    once_more, lower, upper = pipeline.predict(X, return_interval=0.8)
    assert_close(once_more, mean)
    assert_close([lower, upper], scipy.stats.norm.interval(0.8, mean, std))
    rows = pipeline[:-1].transform(X)
    np.testing.assert_array_equal(pipeline[-1].predict_interval(rows, 0.8), [lower, upper])
    assert pipeline[-1].sample_y(rows, 3).shape == (7, 3)
    _, covariance = pipeline.predict(X, return_cov=True)
    assert covariance.shape == (7, 7)
    assert np.all(np.linalg.eigvalsh(covariance) > 0.0)


def test_one_of_the_options_in_a_call(pipeline):
    for options in (
        {"return_std": True, "return_cov": True},
        {"return_std": True, "return_interval": 0.9},
    ):
        with pytest.raises(ValueError, match=r"return_std is True.*ask for one"):
            pipeline.predict(curve()[0], **options)
    with pytest.raises(ValueError, match=r"coverage is 95"):
        pipeline.predict(curve()[0], return_interval=95)


@pytest.mark.slow
def test_covariances_have_the_shapes_of_sklearn():
    X, y = curve()
    Y = np.column_stack([y, np.ones_like(y), 2.0 * y])
    with pytest.warns(NumericsWarning, match="constant in 1 of 3"):
        ours = gvi.GVIRegressor(**QUICK).fit(X, Y)
    mean, covariance = ours.predict(X[:4], return_cov=True)
    peer = GaussianProcessRegressor(RBF() + WhiteKernel(), optimizer=None).fit(X, Y)
    assert [mean.shape, covariance.shape] == [
        part.shape for part in peer.predict(X[:4], return_cov=True)
    ]
    np.testing.assert_array_equal(covariance[..., 1], 0.0)
    assert_close(covariance[..., 2], 4.0 * covariance[..., 0])


@pytest.mark.slow
def test_samples_of_counts_are_counts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    y = rng.poisson(np.exp(1.0 + np.sin(X[:, 0])))
    counts = gvi.GVIRegressor(likelihood=gpflow.likelihoods.Poisson(), **QUICK).fit(X, y)
    at = np.array([[-1.0], [0.0], [1.0]])
    mean, std = counts.predict(at, return_std=True)
    samples = counts.sample_y(at, 20_000)
    np.testing.assert_array_equal(samples, np.floor(samples))
    assert samples.min() >= 0.0
    assert_estimates(samples.mean(axis=1), mean, samples.std(axis=1) / np.sqrt(20_000))
    squares = np.square(samples - mean[:, None])
    assert_estimates(squares.mean(axis=1), std**2, squares.std(axis=1) / np.sqrt(20_000))
    with pytest.raises(ValueError, match=r"return_cov is True.*Poisson.*sample_y"):
        counts.predict(at, return_cov=True)


@pytest.mark.slow
def test_a_transformed_target_has_transformed_intervals():
    X, y = curve()
    whole = TransformedTargetRegressor(
        gvi.GVIRegressor(**QUICK), func=np.log, inverse_func=np.exp
    ).fit(X, np.exp(y))
    alone = gvi.GVIRegressor(**QUICK).fit(X, y)
    # The logarithm of an exponential is another number but for rounding, so that fits end apart.
    assert_close(whole.predict(X), np.exp(alone.predict(X)), ITERATIVE)
    intervals = (each.predict_interval(X, 0.9) for each in (whole.regressor_, alone))
    assert_close(*intervals, ITERATIVE)


@pytest.mark.slow
def test_data_frames_with_columns_of_words_in_a_pipeline():
    pandas = pytest.importorskip("pandas")
    X, y = curve()
    frame = pandas.DataFrame(X, columns=["length", "width"])
    frame["kind"] = np.where(np.arange(len(y)) % 2, "odd", "even")
    target = pandas.Series(y + (frame["kind"] == "odd"), index=frame.index[::-1], name="price")
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["kind"]), remainder="passthrough"
    ).set_output(transform="pandas")
    whole = make_pipeline(encoder, gvi.GVIRegressor(**QUICK)).fit(frame, target)
    assert whole[-1].feature_names_in_[0] == "onehotencoder__kind_even"
    columns = np.column_stack([np.arange(len(y)) % 2 == 0, np.arange(len(y)) % 2, X])
    alone = gvi.GVIRegressor(**QUICK).fit(columns, target.to_numpy())
    assert_close(whole.predict(frame), alone.predict(columns), ITERATIVE)
    assert whole.predict(frame, return_interval=0.9)[1].shape == (50,)
    assert whole.set_params(gviregressor__num_inducing=5).fit(frame, target.to_frame()).predict(
        frame
    ).shape == (50, 1)


@pytest.mark.slow
def test_several_outputs_each_with_an_estimator_of_its_own():
    X, y = curve()
    Y = np.column_stack([y, X[:, 1] ** 2])
    whole = MultiOutputRegressor(gvi.GVIRegressor(**QUICK)).fit(X, Y)
    alone = [gvi.GVIRegressor(**QUICK).fit(X, column).predict(X) for column in Y.T]
    assert_close(whole.predict(X), np.column_stack(alone), ITERATIVE)
    intervals = [one.predict_interval(X, 0.9) for one in whole.estimators_]
    assert np.shape(intervals) == (2, 2, 50)


@pytest.mark.slow
def test_stacked_and_voting_beside_a_line():
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    process = gvi.GVIRegressor(**{**QUICK, "num_inducing": 20})  # of ten features
    members = [("line", LinearRegression()), ("process", process)]
    line = LinearRegression().fit(X[:150], y[:150]).score(X[150:], y[150:])
    for whole in (StackingRegressor(members, cv=2), VotingRegressor(members)):
        assert whole.fit(X[:150], y[:150]).score(X[150:], y[150:]) > line
    final = StackingRegressor([members[0]], process, cv=2, passthrough=True)
    assert final.fit(X[:150], y[:150]).score(X[150:], y[150:]) > line
    mean, std = final.predict(X[150:], return_std=True)
    covered = np.mean(np.abs(y[150:] - mean) < 1.96 * std)
    assert_estimates(covered, 0.95, np.sqrt(0.95 * 0.05 / 150))


@pytest.mark.slow
def test_classifiers_that_are_stacked_or_calibrated():
    X, y = make_moons(400, noise=0.25, random_state=0)
    classifier = gvi.GVIClassifier(**QUICK)
    line = LogisticRegression().fit(X[:200], y[:200]).predict_proba(X[200:])
    for whole in (
        CalibratedClassifierCV(classifier, cv=2),
        StackingClassifier([("process", classifier), ("line", LogisticRegression())], cv=2),
    ):
        p = whole.fit(X[:200], y[:200]).predict_proba(X[200:])
        assert log_loss(y[200:], p) < log_loss(y[200:], line)
    out_of_fold = cross_val_predict(classifier, X, y, cv=2, method="predict_proba")
    assert_close(out_of_fold.sum(axis=1), 1.0)

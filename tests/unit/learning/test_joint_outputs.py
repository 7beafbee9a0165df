"""Outputs that are learned together, and rows of which some values are missing."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from scipy import stats

import gpflow_gvi as gvi
from gpflow_gvi.learning.joint_outputs import observed
from tests.tolerances import assert_close, assert_estimates

N, J = 60, 2


def _truth(x):
    return np.c_[np.sin(2.0 * x), 3.0 - 10.0 * np.sin(2.0 * x) + np.cos(x)]


def require_near(found, mean, variance):
    """A hundredth of a deviation: jitter is a thousandth of the noise, and points miss a little."""
    assert np.max(np.abs(found[0] - mean) / np.sqrt(variance)) < 0.01
    assert np.max(np.abs(found[1] / variance - 1.0)) < 0.01


@pytest.fixture(scope="module")
def data():
    """Two outputs that are nearly the same but for units; of each, a half-line is missing."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    Y = _truth(X[:, 0]) + np.array([0.05, 2.0]) * rng.normal(size=(N, J))
    Y[X[:, 0] > 1.0, 0] = np.nan
    Y[X[:, 0] < -1.0, 1] = np.nan
    return X, Y


@pytest.fixture(scope="module")
def learned(data):
    return gvi.learn(data, kernel=SquaredExponential(), missing="ignore")


def test_it_is_the_exact_process_of_what_was_observed(learned, data):
    """GPflow's GPR of rows [x, j], with the same hyper-parameters."""
    X, Y = (np.asarray(part) for part in data)
    prior, noise = learned.regulariser.prior, learned.regulariser.likelihood.variance
    rows = np.array([[x, j] for x in X[:, 0] for j in range(J)])
    rows[:, :1] = (rows[:, :1] - X.mean()) / X.std()
    scale, shift = np.nanstd(Y, axis=0), np.nanmean(Y, axis=0)
    y = ((Y - shift) / scale).reshape(-1, 1)
    seen = ~np.isnan(y[:, 0])
    kernel = prior.kernel.kernel
    K = kernel(rows[seen]).numpy() + np.diag(noise.numpy()[rows[seen][:, 1].astype(int)])
    new = np.linspace(-3.0, 3.0, 7)[:, None]
    pairs = np.array([[x, j] for x in (new[:, 0] - X.mean()) / X.std() for j in range(J)])
    cross = kernel(pairs, rows[seen]).numpy()
    mean = (cross @ np.linalg.solve(K, y[seen])).reshape(7, J) * scale + shift
    variance = kernel(pairs, full_cov=False) - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    posterior = learned.regulariser.posterior
    of_p = posterior.predict(learned.inputs.standard(new))
    of_p = learned.outputs.original(of_p[0]), of_p[1] * scale**2
    require_near(of_p, mean, np.reshape(variance, (7, J)) * scale**2)


def test_new_rows_are_learned_as_the_exact_process_of_all_rows_has_them(learned, data):
    """By linear algebra; of the new rows, too, some values are missing."""
    X, Y = (np.asarray(part) for part in data)
    rng = np.random.default_rng(4)
    X_new = rng.uniform(-3.0, 3.0, (8, 1))
    Y_new = _truth(X_new[:, 0]) + np.array([0.05, 2.0]) * rng.normal(size=(8, J))
    Y_new[::3, 0] = np.nan
    updated = learned.update(X_new, Y_new, num_inducing=16)
    assert int(updated.model.num_data) == np.sum(~np.isnan(Y)) + np.sum(~np.isnan(Y_new))

    units = learned.inputs, learned.outputs
    x = np.asarray(units[0].standard(np.concatenate([X, X_new])))[:, 0]
    rows = np.array([[value, j] for value in x for j in range(J)])
    y = np.asarray(units[1].scaled(np.concatenate([Y, Y_new]))).reshape(-1, 1)
    seen = ~np.isnan(y[:, 0])
    kernel, noise = learned.regulariser.prior.kernel.kernel, learned.regulariser.likelihood.variance
    K = kernel(rows[seen]).numpy() + np.diag(noise.numpy()[rows[seen][:, 1].astype(int)])
    at = np.linspace(-2.0, 2.0, 5)[:, None]
    pairs = np.array([[value, j] for value in at[:, 0] for j in range(J)])
    cross = kernel(pairs, rows[seen]).numpy()
    mean = (cross @ np.linalg.solve(K, y[seen])).reshape(5, J)
    variance = kernel(pairs, full_cov=False) - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    of_p = updated.regulariser.posterior.predict(at)
    require_near(of_p, mean, np.reshape(variance, (5, J)))
    assert_close(updated.model.predict_f(at)[0], of_p[0])
    old = learned.regulariser.posterior.predict(at)
    assert np.max(np.abs(old[0] - mean)) > 0.01  # the new rows say something
    np.testing.assert_array_equal(updated.likelihood.variance, learned.likelihood.variance)


def test_new_rows_of_another_number_of_outputs_are_refused(learned):
    with pytest.raises(ValueError, match=r"Y has shape \(3, 1\); it must be \(3, 2\)"):
        learned.update(np.zeros((3, 1)), np.zeros((3, 1)))


def test_each_output_has_noise_of_its_own(learned, data):
    deviations = np.sqrt(learned.regulariser.likelihood.variance) * learned.outputs.scale
    truth, counts = np.array([0.05, 2.0]), np.sum(~np.isnan(data[1]), axis=0)
    assert_estimates(deviations, truth, truth / np.sqrt(2 * counts))


def test_an_output_is_known_where_the_other_one_was_observed(learned, rng):
    x = np.linspace(1.2, 2.8, 9)[:, None]  # of the first output there is nothing
    mean, variance = learned.predict_f(x)
    truth = _truth(x[:, 0])
    assert np.sqrt(np.mean((mean[:, 0] - truth[:, 0]) ** 2)) < 0.45  # of the truth: 0.7
    assert np.mean(variance[:, 0] < 0.2) > 0.5
    assert np.sqrt(np.mean((mean - truth) ** 2 / variance)) < 2.0


@pytest.mark.draws
def test_predictions_have_all_outputs(learned, tmp_path):
    x = np.linspace(-3.0, 3.0, 5)[:, None]
    mean, variance = learned.predict_y(x)
    assert mean.shape == variance.shape == (5, J)
    again = learned.predict_y(x)  # as a graph
    assert_close(again[1], variance)
    assert learned.predict_f(x, full_cov=True)[1].shape == (J, 5, 5)
    assert learned.predict_f_samples(x, 3).shape == (3, 5, J)
    learned.save(tmp_path / "model")
    assert_close(gvi.load(tmp_path / "model").predict_y(x)[1], variance)


def test_the_density_of_a_row_is_that_of_its_outputs_together(learned):
    """SciPy's, with the moments of many samples of y."""
    x, S = np.linspace(-4.0, 6.0, 5)[:, None], 100_000
    Y = np.asarray(learned.predict_y(x)[0]) + np.array([0.3, 4.0])
    samples = learned.predict_y_samples(x, S, seed=1)
    found, expected, squares = learned.predict_log_density((x, Y)), [], []
    for n, y in enumerate(Y):
        mean, covariance = np.mean(samples[:, n], axis=0), np.cov(samples[:, n], rowvar=False)
        expected.append(stats.multivariate_normal(mean, covariance).logpdf(y))
        squares.append((y - mean) @ np.linalg.solve(covariance, y - mean))
    # The error of log N by those of the moments: (q² + J) / 2S for q, the square in deviations.
    assert_estimates(found, expected, np.sqrt((np.square(squares) + J) / (2.0 * S)))


def test_a_row_whose_outputs_contradict_each_other_has_a_small_density(learned):
    """Beyond the data the second output is known from the first, which falls where it rises."""
    x = np.array([[6.0]])
    mean, variance = learned.predict_y(x)
    deviations = np.sqrt(variance)
    fits, contradicts = (
        learned.predict_log_density((x, mean + deviations * signs))[0]
        for signs in ([1.0, -1.0], [1.0, 1.0])
    )
    assert fits > contradicts + 5.0


@pytest.mark.slow
def test_intervals_are_calibrated_by_rows_without_gaps():
    """Split conformal prediction covers with the given probability, whatever the noise."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-3.0, 3.0, size=(300, 1)), rng.uniform(-3.0, 3.0, size=(1000, 1))
    Y, unseen = (
        np.sin(np.c_[x, x]) + 0.3 * rng.standard_t(2.5, size=(len(x), 2)) for x in (X, new)
    )
    Y[rng.uniform(size=300) < 0.2, 1] = np.nan
    options = {"missing": "ignore", "kernel": SquaredExponential()}
    learned = gvi.learn((X, Y), calibration_fraction=0.3, **options)
    lower, upper = learned.predict_interval(new, 0.8)
    covered = np.mean((lower <= unseen) & (unseen <= upper), axis=0)
    # Of 1,000 rows, by the quantile of 72 without gaps.
    assert_estimates(covered, 0.8, np.sqrt(0.8 * 0.2 / 1000 + 0.8 * 0.2 / 72))
    assert learned.model.num_data < 2 * 300 - 60


def test_of_one_output_rows_without_it_are_left_out(rng):
    X = rng.normal(size=(40, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    holes = y.astype(object)
    holes[[3, 7]] = None
    options = {"kernel": SquaredExponential()}
    kept = np.delete(np.arange(40), [3, 7])
    expected = gvi.learn((X[kept], y[kept]), **options).predict_y(X)
    for given in (holes, np.ma.masked_array(y, np.isin(np.arange(40), [3, 7]))):
        found = gvi.learn((X, given), missing="ignore", **options).predict_y(X)
        assert_close(found, expected)


def test_rows_and_masks_of_what_is_observed():
    X = np.arange(3.0)[:, None]
    Y = np.ma.masked_array(np.arange(6).reshape(3, 2), [[1, 1], [0, 1], [0, 0]])
    rows, values, numbers = observed((X, Y))
    np.testing.assert_array_equal(rows, X[1:])
    np.testing.assert_array_equal(numbers, [1, 2])
    np.testing.assert_array_equal(values, [[2.0, np.nan], [4.0, 5.0]])


@pytest.mark.parametrize(
    ("Y", "options", "error", "message"),
    [
        ([[1.0, np.nan]] * 9, {"missing": "ignore"}, ValueError, "no value in column 1"),
        ([[1.0, np.inf]] * 9, {"missing": "ignore"}, ValueError, "Y has NaN or infinite"),
        ([[1.0, np.nan]] * 9, {}, ValueError, "missing='ignore'"),
        ([[1.0, np.nan]] * 9, {"outputs": "correlated"}, ValueError, "missing='ignore'"),
        ([["a", "b"]] * 9, {"missing": "ignore"}, TypeError, "Y has dtype"),
        ([[1.0, 2.0]] * 9, {"outputs": "joint"}, ValueError, "outputs is 'joint'"),
        ([[1.0, 2.0]] * 9, {"missing": "drop"}, ValueError, "missing is 'drop'"),
        ([[1.0, 2.0]] * 9, {"outputs": "correlated"}, ValueError, "constant in column 0"),
        (
            np.eye(9, 2),
            {"outputs": "correlated", "likelihood": gpflow.likelihoods.StudentT()},
            ValueError,
            "likelihood is .*StudentT.*, which is not for several outputs",
        ),
        (
            np.eye(9, 2),
            {"outputs": "correlated", "epochs": 3},
            ValueError,
            "epochs.*which is not for several outputs",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(Y, options, error, message):
    with pytest.raises(error, match=message):
        gvi.learn((np.arange(9.0)[:, None], Y), **options)


def test_blocks_to_validate_with_are_refused_by_their_name(rng):
    X, Y = rng.normal(size=(20, 1)), rng.normal(size=(20, 2))
    blocks = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
    with pytest.raises(TypeError, match=r"^validation_data is a .*Dataset; with outputs that"):
        gvi.learn((X, Y), outputs="correlated", validation_data=blocks)


def test_a_coregionalisation_is_refused_with_the_way():
    kernel = gpflow.kernels.LinearCoregionalization([SquaredExponential()], np.ones((2, 1)))
    with pytest.raises(TypeError, match="outputs='correlated'"):
        gvi.learn((np.arange(9.0)[:, None], np.eye(9, 2)), kernel=kernel)

"""Fitted predictors as mean functions."""

from __future__ import annotations

import copy

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import threadpoolctl
from sklearn.linear_model import LinearRegression

import gpflow_gvi as gvi
from gpflow_gvi.mean_functions import CrossFitted, Predictor
from gpflow_gvi.mean_functions.predictor import MAX_ROWS_AT_ONCE
from tests.tolerances import assert_close


@pytest.fixture(name="X")
def inputs(rng):
    return rng.normal(size=(12, 3))


class Counting:
    """The sum of the columns, and how many rows each call had."""

    def __init__(self):
        self.calls = []

    def predict(self, X):
        self.calls.append(len(X))
        return X.sum(axis=1)


def test_it_is_what_the_model_predicts(X, rng):
    Y = rng.normal(size=(12, 2))
    model = LinearRegression().fit(X, Y)
    mean = Predictor(model, num_outputs=2)
    np.testing.assert_array_equal(mean(X), model.predict(X))
    one = LinearRegression().fit(X, Y[:, 0])
    np.testing.assert_array_equal(Predictor(one)(X), one.predict(X)[:, None])
    np.testing.assert_array_equal(Predictor(np.sin, num_outputs=3)(X), np.sin(X))
    both = Predictor([model, lambda X: X[:, :2]], num_outputs=2)
    assert_close(both(X), (model.predict(X) + X[:, :2]) / 2.0)


def test_in_a_graph_it_is_the_same(X):
    mean = Predictor(Counting())
    signature = [tf.TensorSpec([None, 3], tf.float64)]
    graph = tf.function(mean, input_signature=signature, autograph=False)
    for rows in (X, X[:5]):
        value = graph(rows)
        assert value.shape == (len(rows), 1)
        np.testing.assert_array_equal(value, mean(rows))


def test_rows_that_are_seen_again_are_predicted_once(X):
    model = Counting()
    mean = Predictor(model)
    for _ in range(3):
        mean(X)
        mean(X[:4])
        copy.deepcopy(mean)(X.copy())
    assert model.calls == [12, 4]


def test_many_rows_are_predicted_in_blocks(rng):
    model = Counting()
    X = rng.normal(size=(2 * MAX_ROWS_AT_ONCE + 5, 1))
    np.testing.assert_array_equal(Predictor(model)(X), X)
    assert model.calls == [MAX_ROWS_AT_ONCE, MAX_ROWS_AT_ONCE, 5]


def test_few_rows_are_predicted_by_one_thread(rng):
    # With two, each boosted tree waits for both: beside another program, for seconds in all.
    threads = []

    def predict(X):
        pools = threadpoolctl.threadpool_info()
        threads.extend(each["num_threads"] for each in pools if each["user_api"] == "openmp")
        return X[:, 0]

    with threadpoolctl.threadpool_limits(2, user_api="openmp"):
        Predictor(predict)(rng.normal(size=(5, 3)))
    assert set(threads) == {1}


def test_rows_of_the_fit_are_predicted_by_the_model_that_has_not_seen_them(X):
    models = [lambda X: np.full(len(X), 1.0), lambda X: np.full(len(X), 3.0)]
    out_of_fold = np.arange(12.0)[:, None]
    mean = CrossFitted(models, X, out_of_fold)
    np.testing.assert_array_equal(mean(X), out_of_fold)
    order = [7, 0, 11, 3]
    np.testing.assert_array_equal(mean(X[order]), out_of_fold[order])
    mixed = np.concatenate([X[5:7], X[5:7] + 1e-9])
    np.testing.assert_array_equal(mean(mixed)[:, 0], [5.0, 6.0, 2.0, 2.0])


def test_rows_of_the_fit_are_known_up_to_rounding(X):
    """A compiled graph scales inputs with other rounding errors than NumPy."""
    X = np.column_stack([X, np.zeros(len(X)), 1e6 + X[:, 0]])
    out_of_fold = np.arange(12.0)[:, None]
    mean = CrossFitted([lambda X: np.full(len(X), -1.0)], X, out_of_fold)
    nearby = np.nextafter(np.nextafter(X, np.inf), np.inf)
    nearby[:, -2] = 1e-16
    np.testing.assert_array_equal(mean(nearby[3:]), out_of_fold[3:])
    other = X.copy()
    other[:, -2] = [*10.0 ** np.arange(-10.0, 1.0), 1e300]
    np.testing.assert_array_equal(mean(other), -1.0)


def test_zero_of_either_sign_is_one_row():
    mean = CrossFitted([lambda X: np.zeros(len(X))], np.array([[0.0, 1.0]]), np.array([[4.0]]))
    assert float(mean(np.array([[-0.0, 1.0], [1.0, 1.0]]))[0, 0]) == 4.0


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (3.0, TypeError, "predictor is 3.0; it must be a fitted object"),
        (LinearRegression, TypeError, "it must be a fitted object"),
        (lambda X: X, ValueError, r"shape \(12, 3\) for 12 rows; it must be \(12, 1\) or \(12,\)"),
        (lambda X: np.full(len(X), np.nan), ValueError, "not all finite"),
        (lambda X: np.array(["a"] * len(X)), ValueError, "not all finite numbers"),
    ],
)
def test_what_predicts_nothing_of_use_is_refused(model, error, words, X):
    with pytest.raises(error, match=words):
        Predictor(model)(X)


def test_as_the_mean_of_q_and_p_it_is_left_as_it_is(X, rng):
    """The divergence of two processes of the same mean does not depend on it."""
    Y = X.sum(axis=1, keepdims=True) + 0.1 * rng.normal(size=(12, 1))
    mean, kernel = Predictor(Counting()), gpflow.kernels.Matern52()
    P = gvi.GaussianProcess(mean, kernel)
    Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(kernel, X[:5]))
    model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=12)
    assert_close(model.predict_y(X)[0], X.sum(axis=1, keepdims=True))
    model.compile(tf.keras.optimizers.Adam(0.01))
    history = model.fit(X, Y, epochs=2, batch_size=6, verbose=0).history
    assert np.all(np.isfinite(history["loss"]))
    assert_close(model.predict_f(X)[0], X.sum(axis=1, keepdims=True))

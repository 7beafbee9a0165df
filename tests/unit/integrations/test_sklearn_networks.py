"""Copies of estimators with models of Keras that are written as classes."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.linear_model import Ridge

import gpflow_gvi as gvi
from tests.tolerances import assert_close

pytestmark = pytest.mark.draws

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = X[:, 0] + 0.1 * rng.normal(size=60)


class Net(keras.Model):
    """As in tutorials: it is not registered, and its `__init__` has an argument."""

    def __init__(self, units=5):
        super().__init__()
        self.hidden, self.last = [keras.layers.Dense(units)], keras.layers.Dense(1)

    def call(self, inputs):
        for layer in self.hidden:
            inputs = tf.nn.relu(layer(inputs))
        return self.last(inputs)


def test_a_trained_model_is_copied_with_its_values():
    network = Net()
    network.compile("adam", "mse")
    network.fit(X, y, verbose=0)
    estimator = gvi.GVIRegressor(network=network, features="inputs", epochs=3)
    copied = clone(estimator)
    assert estimator.network is network
    assert isinstance(copied.network, Net)
    assert copied.network is not network
    assert_close(copied.network(X), network(X))
    others = {"network": None}
    assert copied.get_params() | others == estimator.get_params() | others
    for weight in copied.network.weights:
        weight.assign(tf.zeros_like(weight))
    assert np.std(network(X)) > 0.0


@pytest.mark.parametrize("value", [None, 7, abs], ids=["none", "units", "a function"])
def test_other_values_are_as_scikit_learn_has_them(value):
    assert clone(gvi.GVIRegressor(network=value)).network == value


def test_estimators_within_are_not_fitted():
    fitted = Ridge().fit(X, y)
    estimator = gvi.GVIRegressor(network=Net(), predictor=fitted)
    copied = clone(estimator)
    assert isinstance(copied.predictor, Ridge)
    assert not hasattr(copied.predictor, "coef_")

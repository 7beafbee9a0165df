"""Networks are trained as they would be by Keras: units of Y, codes of labels, compiled heads."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

import gpflow_gvi as gvi

L = keras.layers
RNG = np.random.default_rng(20261202)
X = RNG.normal(size=(200, 3)).astype(np.float32)
POSITIVE = np.exp(X[:, :1])


def net(J, activation=None, *, end=()):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((3,)), L.Dense(16, "relu"), L.Dense(J, activation), *end])


def learned(network, Y, **options):
    options = {"epochs": 15, "num_inducing": 20, "features": "penultimate"} | options
    return gvi.learn((X, Y), network=network, **options)


@pytest.mark.parametrize("kind", ["relu", "softplus", "ReLU", "sigmoid", "poisson", "linear"])
def test_numbers_are_within_reach_of_the_network(kind):
    ends = {"poisson": (1, "softplus"), "ReLU": (1, None)}
    network = net(*ends.get(kind, (1, kind)), end=[L.ReLU()] if kind == "ReLU" else [])
    Y, options = 50.0 * POSITIVE, {"learning_rate": 0.02}
    if kind == "sigmoid":
        Y, options["likelihood"] = POSITIVE / (1.0 + POSITIVE), gpflow.likelihoods.Gaussian()
    if kind == "poisson":
        Y, options = POSITIVE, {}
        network.compile(keras.optimizers.Adam(0.02), "poisson")
    found = learned(network, Y, **options)
    error = np.mean(np.abs(found.predict(X) - Y)) / np.mean(np.abs(Y - np.median(Y)))
    assert error < 0.3


@pytest.mark.parametrize(("end", "Y"), [("tanh", 5.0 + POSITIVE), ("relu", -POSITIVE)])
def test_numbers_out_of_reach_of_the_network_are_refused(end, Y):
    with pytest.raises(ValueError, match=f"ends with the activation '{end}', .* End it with no"):
        learned(net(1, end), Y)

"""Networks are trained as they would be by Keras: units of Y, codes of labels, compiled heads."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

import gpflow_gvi as gvi

pytestmark = [pytest.mark.draws, pytest.mark.filterwarnings("error:Skipping variable loading")]

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["relu", "softplus", "ReLU", "operation", "sigmoid", "poisson", "linear"]
)
def test_numbers_are_within_reach_of_the_network(kind):
    ends = {"poisson": (1, "softplus"), "ReLU": (1, None), "operation": (1, None)}
    network = net(*ends.get(kind, (1, kind)), end=[L.ReLU()] if kind == "ReLU" else [])
    if kind == "operation":
        network = keras.Model(network.inputs, keras.ops.exp(network.outputs[0]))
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


LABELS = X.argmax(axis=1)
BINARY = keras.losses.BinaryCrossentropy(from_logits=True)
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "kind"), [("binary_crossentropy", "codes"), ("categorical_crossentropy", "names")]
)
def test_a_network_compiled_for_a_code_of_labels_is_trained_with_it(loss, kind):
    network = net(3, "softmax")
    network.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    Y = np.eye(3)[LABELS] if kind == "codes" else np.array(list("abc"))[LABELS]
    found = learned(network, Y)
    assert found.history["accuracy"][-1] > 0.85
    assert np.mean(found.predict_proba(X).argmax(axis=1) == LABELS) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("J", [1, 3])
def test_columns_are_trained_in_their_order(J):
    names = np.array(list("cab") if J == 3 else ["yes", "no"])
    y = names[LABELS if J == 3 else (X[:, 0] > 0.0).astype(int)]
    network = net(J)
    network.compile(keras.optimizers.Adam(0.02), SPARSE if J == 3 else BINARY)
    found = learned(network, y, classes=list(names), predictor=None)
    assert np.mean(found.predict(X) == y) > 0.85


@pytest.mark.parametrize("kind", ["dictionary", "list", "single"])
def test_a_head_is_trained_as_the_network_is_compiled(kind):
    keras.utils.set_random_seed(0)
    x = keras.Input((3,))
    hidden = L.Dense(8, "relu")(x)
    heads = [L.Dense(1, name="amount")(hidden), L.Dense(3, name="topic")(hidden)]
    if kind == "dictionary":
        heads = dict(zip(("amount", "topic"), heads, strict=True))
    network = keras.Model(x, heads)
    losses = {"dictionary": {"amount": "mse", "topic": SPARSE}, "list": ["mse", SPARSE]}
    network.compile(keras.optimizers.SGD(0.0), losses.get(kind, SPARSE))
    found = learned(network, LABELS, output="topic", epochs=2, predictor=None)
    assert np.ptp(found.history["loss"]) < 1e-5
    out = network.predict(X, verbose=0)
    logits = out["topic"] if kind == "dictionary" else out[1]
    np.testing.assert_array_equal(found.predict(X), logits.argmax(axis=1))


def test_a_loss_of_two_classes_says_that_numbers_are_labels():
    network = net(1)
    network.compile("sgd", BINARY)
    found = learned(network, (X[:, 0] > 0.0).astype(int), epochs=0, predictor=None)
    logits = network.predict(X, verbose=0)[:, 0]
    np.testing.assert_array_equal(found.predict(X), (logits > 0.0).astype(int))


def test_fractions_are_no_labels():
    with pytest.raises(ValueError, match=r"the first is 0\.\d+.* likelihood=gpflow.likelihoods.Ga"):
        learned(net(1, "sigmoid"), POSITIVE / (1.0 + POSITIVE))


def test_no_rows_and_other_columns_are_told_of():
    found = learned(net(1), POSITIVE, epochs=1)
    with pytest.raises(ValueError, match=r"X has shape \(0, 3\): no rows"):
        found.predict(X[:0])
    with pytest.raises(ValueError, match="Pass the same columns"):
        found.predict(X[:, :2])

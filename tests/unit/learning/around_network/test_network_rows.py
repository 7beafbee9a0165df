"""Inputs as rows of outputs and features: against the layers of the network, evaluated by hand."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.learning.around_network.network_rows import (
    Inputs,
    Outputs,
    feature_kernel,
    network_rows,
)
from gpflow_gvi.learning.rows.scaling import Scaling
from tests.tolerances import ITERATIVE, assert_close

N, SHAPE = 30, (6, 6, 2)
X = np.random.default_rng(0).uniform(size=(N, *SHAPE)).astype(np.float32)


def network(activation=None, J=3, first=()):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            *first,
            keras.layers.Conv2D(4, 3, activation="relu", name="conv"),
            keras.layers.GlobalAveragePooling2D(name="pooled"),
            keras.layers.Dense(5, "tanh", name="hidden"),
            keras.layers.Dense(J, activation, name="last"),
        ]
    )


def behind(net, operation):
    """What an operation of keras.ops makes of the outputs of a network."""
    return keras.Model(net.inputs, operation(net.outputs[0]))


class Written(keras.Model):
    """A model whose graph is not known, and whose last layer is not made last."""

    def __init__(self, link, J=3):
        super().__init__()
        self.last, self.hidden, self.link = keras.layers.Dense(J), keras.layers.Dense(5), link
        self.flattened = keras.layers.Flatten()

    def call(self, inputs):
        return self.link(self.last(self.hidden(self.flattened(inputs))))


def layer_of(net, name, inputs=X):
    return keras.Model(net.inputs, net.get_layer(name).output).predict(inputs, verbose=0)


def rows_of(net, features="penultimate", inputs=X):
    taken = Inputs.of(net, inputs)
    return network_rows([net], features, taken, Outputs.of(net, taken, inputs))


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ("penultimate", ["hidden"]),
        ("pooled", ["pooled"]),
        (["penultimate", "pooled"], ["hidden", "pooled"]),
    ],
)
def test_columns_are_the_outputs_and_the_layers(features, names):
    net = network()
    expected = [net.predict(X, verbose=0), *(layer_of(net, name) for name in names)]
    rows = rows_of(net, features)
    assert rows.num_features == tuple(part.shape[1] for part in expected[1:])
    assert_close(rows(X), np.concatenate(expected, axis=1), precision=np.float32)


def test_layers_are_averaged_over_positions():
    """Of each number of positions the last layer, unless the last layer receives its average."""
    keras.utils.set_random_seed(0)
    flatten = keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Rescaling(2.0),
            keras.layers.Conv2D(4, 3, name="first"),
            keras.layers.ReLU(name="second"),
            keras.layers.Conv2D(3, 3, name="third"),
            keras.layers.Flatten(),
            keras.layers.Dense(5, name="hidden"),
            keras.layers.Dense(3),
        ]
    )
    rows = rows_of(flatten, "layers")
    parts = [layer_of(flatten, name).mean(axis=(1, 2)) for name in ("second", "third")]
    expected = [flatten.predict(X, verbose=0), *parts, layer_of(flatten, "hidden")]
    assert rows.num_features == (4, 3, 5)
    assert_close(rows(X), np.concatenate(expected, axis=1))
    assert rows_of(network(), "layers").num_features == (5,)
    inner = keras.Sequential([keras.Input(SHAPE), keras.layers.Conv2D(4, 3, name="inner")])
    nested = keras.Sequential(
        [keras.Input(SHAPE), inner, keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    assert_close(
        rows_of(nested, "layers")(X)[:, 3:7], inner.predict(X, verbose=0).mean(axis=(1, 2))
    )


def test_embeddings_are_features_beside_what_becomes_of_them():
    words = np.random.default_rng(0).integers(20, size=(N, 6))
    x = keras.Input((6,), dtype="int32")
    embedded = keras.layers.Embedding(20, 4)(x)
    sequence = keras.layers.GRU(5, return_sequences=True)(embedded)
    pooled = keras.layers.GlobalAveragePooling1D()(sequence)
    net = keras.Model(x, keras.layers.Dense(3)(pooled))
    rows = rows_of(net, "layers", words)
    parts = keras.Model(x, [net.output, embedded, pooled]).predict(words, verbose=0)
    assert rows.num_features == (4, 5)
    assert_close(rows(words), np.hstack([parts[0], parts[1].mean(axis=1), parts[2]]), ITERATIVE)


def test_what_a_layer_returns_elsewhere_is_left_out():
    shared = keras.layers.Conv2D(2, 3, padding="same")
    elsewhere = keras.Input(SHAPE)
    keras.Model(elsewhere, keras.layers.ReLU()(shared(elsewhere)))
    here = keras.Input(SHAPE)
    hidden = keras.layers.Conv2D(2, 3, padding="same")(here)
    outputs = keras.layers.Dense(3)(keras.layers.Flatten()(shared(hidden)))
    rows = rows_of(keras.Model(here, outputs), "layers")
    assert rows.num_features == (2, 72)  # of here, averaged and flattened
    averaged = shared(keras.Model(here, hidden)(X)).numpy().mean(axis=(1, 2))
    assert_close(rows(X)[:, 3:5], averaged)


@pytest.mark.parametrize("features", ["layers", "penultimate", "hidden"])
def test_layers_of_another_network_have_their_place_in_this(features):
    layers = keras.layers
    net = keras.Sequential(
        [keras.Input((3,)), layers.Dense(6, "relu", name="hidden"), layers.Dense(3)]
    )
    ours = keras.Sequential([keras.Input((3,)), *net.layers, layers.Softmax()])
    table = X.reshape(len(X), -1)[:, :3]
    found, expected = (rows_of(each, features, table)(table) for each in (ours, net))
    assert_close(found[:, 3:], expected[:, 3:])


def test_features_of_a_function_and_of_the_inputs():
    net = network()
    rows = rows_of(net, [lambda images: images[:, 0, 0], "inputs"])
    assert rows.num_features == (2, 72)
    found = rows(X).numpy()[:, 3:]
    assert_close(found, np.hstack([X[:, 0, 0], X.reshape(N, -1)]))


def test_outputs_that_are_probabilities_become_logits():
    net = network("softmax")
    h = rows_of(net)(X).numpy()[:, :3]
    found = scipy.special.softmax(h, axis=1)
    assert_close(found, net.predict(X, verbose=0), precision=np.float32)
    net = network("sigmoid", J=1)
    h = rows_of(net)(X).numpy()[:, :1]
    found = scipy.special.expit(h)
    assert_close(found, net.predict(X, verbose=0), precision=np.float32)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda X: X[:, 0, :3, 0] - 5.0, "logits"),
        (lambda X: X[:, 0, :3, 0] / np.sum(X[:, 0, :3, 0], 1, keepdims=True), "probabilities"),
        (lambda X: X[:, 0, :3, 0], None),
        (network(activation="softmax"), "probabilities"),
        (network(), "logits"),
        (network(activation="log_softmax"), "logits"),
        (network(activation="tanh"), None),
        (keras.Sequential([network(), keras.layers.Softmax()]), "probabilities"),
        (network(activation=tf.nn.softmax), "probabilities"),
        (behind(network("softmax"), keras.layers.Activation("linear")), "probabilities"),
        (behind(network(), keras.ops.softmax), "probabilities"),
        (behind(network(), keras.ops.log_softmax), "logits"),
        (Written(keras.ops.softmax), "probabilities"),
        (Written(lambda x: 9.0 * x), "logits"),
    ],
)
def test_kind_of_the_outputs(function, kind):
    assert Outputs.of(function, Inputs.of(function, X), X) == (3, kind)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (behind(network(J=1), keras.ops.sigmoid), "probabilities"),
        (behind(network("sigmoid", J=1), lambda p: keras.ops.cast(p, "float64")), "probabilities"),
        (Written(keras.ops.sigmoid, J=1), None),
        (Written(lambda x: 9.0 * x, J=1), "logits"),
        (network(J=1), "logits"),
    ],
)
def test_kind_of_one_column(function, kind):
    assert Outputs.of(function, Inputs.of(function, X), X) == (1, kind)


def test_a_copy_is_taken_of_the_network():
    net = network()
    rows = rows_of(net)
    before = rows(X).numpy()
    net.set_weights([2.0 * weight for weight in net.get_weights()])
    np.testing.assert_array_equal(rows(X), before)


def test_pixels_in_bytes_are_scaled_once():
    pixels = np.round(255 * X).astype(np.uint8)
    net = network()
    expected = rows_of(net)(pixels / 255.0)
    for scaled in (net, network(first=[keras.layers.Rescaling(1.0 / 255.0)])):
        found = rows_of(scaled, inputs=pixels)(pixels)
        assert_close(found, expected, precision=np.float32)
    with pytest.warns(NumericsWarning, match="looks like images that were not scaled"):
        rows_of(net)(pixels.astype(float))


def test_each_feature_has_its_own_unit_and_pixels_have_one():
    rows = rows_of(network(), ["penultimate", "inputs"])
    values = rows(X).numpy()
    values[:, -1] *= 1e-9  # a pixel that hardly varies
    units = rows.scaling(values, Scaling(np.full(3, 7.0), np.full(3, 2.0)))
    standard = units.standard(values).numpy()
    assert_close(standard[:, :3], (values[:, :3] - 7.0) / 2.0)
    assert_close(standard[:, 3:8].std(axis=0), 1.0)
    assert_close(standard[:, 8:].var(axis=0).mean(), 1.0)
    assert standard[:, -1].std() < 1e-6


def test_kernel_is_a_sum_of_one_for_each_group_by_median_distances():
    rows = rows_of(network(), ["penultimate", "inputs"])
    values = rows(X).numpy()
    kernel, expected = feature_kernel(values, rows), np.zeros((N, N))
    about_mean = values[:, :3] - values[:, :3].mean(axis=1, keepdims=True)
    for group in (values[:, 3:8], values[:, 8:]):
        distances = np.linalg.norm(group[:, None] - group[None], axis=-1)
        ell = 0.5 * np.median(distances[np.triu_indices(N, 1)])
        expected += 0.5 * np.mean(about_mean**2) * np.exp(-0.5 * np.square(distances / ell))
    assert_close(kernel(values), expected)
    assert not kernel.trainable_variables


def test_layers_that_give_no_rows_are_refused():
    split = keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Reshape((3, 2, 3, 2, 2), name="split"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    with pytest.raises(ValueError, match=r"have shape \(None, 3, 2, 3, 2, 2\); they must be"):
        rows_of(split, "split")
    bare = keras.Sequential([keras.Input(SHAPE), keras.layers.GlobalAveragePooling2D()])
    with pytest.raises(ValueError, match="no last layer with weights of its own"):
        rows_of(bare)
    with pytest.raises(TypeError, match="features is 3"):
        rows_of(network(), 3)


def test_text_is_no_image():
    with pytest.raises(TypeError, match="X has dtype <U1"):
        Inputs.of(network(), X).validated("X", np.full((4, *SHAPE), "a"))

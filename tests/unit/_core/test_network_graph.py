"""Graphs of models that are written as classes, against the models themselves."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi._core.network_graph import as_graph
from tests.tolerances import assert_close, assert_differ

L = keras.layers
X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


class Written(keras.Model):
    """What tutorials have: no **kwargs, and dropout that is told whether this is training."""

    def __init__(self, units=2, activation=keras.ops.relu):
        super().__init__()
        self.hidden, self.dropout, self.last = L.Dense(9), L.Dropout(0.5), L.Dense(units)
        self.norm, self.activation = L.BatchNormalization(), activation

    def call(self, inputs, training=False):
        hidden = self.norm(self.activation(self.hidden(inputs)), training=training)
        return self.last(self.dropout(hidden, training=training))


class WithWeight(Written):
    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs):
        return super().call(inputs) * self.scale


class WithLoss(Written):
    def call(self, inputs):
        outputs = super().call(inputs)
        self.add_loss(keras.ops.mean(outputs))
        return outputs


class WithTraining(Written):
    def train_step(self, data):
        return {"loss": tf.zeros([])}


class WithBranch(Written):
    def call(self, inputs, training=False):
        outputs = super().call(inputs, training=training)
        return 0.5 * outputs if training else outputs


class WithLayer(Written):
    def __init__(self):
        super().__init__()
        self.dropout = Unfinished()


class Unfinished(L.Layer):
    def __init__(self):
        super().__init__()

    def call(self, inputs):
        return inputs


def test_it_computes_the_same_with_the_same_variables():
    model = Written()
    graph = as_graph(model, X[:1])
    assert_close(graph(X), model(X), precision=np.float32)
    assert {*map(id, graph.variables)} == {*map(id, model.variables)}
    assert [each.name for each in graph.layers if each.weights] == [
        layer.name for layer in (model.hidden, model.norm, model.last)
    ]


@pytest.mark.draws
def test_it_is_told_of_training():
    model = Written()
    graph = as_graph(model, X[:1])
    assert_differ(graph(X, training=True), graph(X, training=True))  # by dropout
    np.testing.assert_array_equal(graph(X), graph(X))
    mean = model.norm.moving_mean.numpy()
    graph.compile("sgd", "mse")
    graph.fit(X, X[:, :2], verbose=0)
    assert_differ(model.norm.moving_mean, mean)


def test_it_is_compiled_as_the_model_is():
    model = Written()
    model.compile(keras.optimizers.SGD(0.125), "mae")
    graph = as_graph(model, X[:1])
    assert graph.loss == "mae"
    assert float(graph.optimizer.learning_rate) == 0.125
    assert graph.optimizer is not model.optimizer


@pytest.mark.parametrize(
    "model",
    [
        Written(activation=tf.nn.relu),
        WithWeight(),
        WithLoss(),
        WithTraining(),
        WithBranch(),
        WithLayer(),
        keras.Sequential([keras.Input((3,)), L.Dense(1)]),
        L.Dense(1),
        tf.square,
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_has_no_graph_or_is_one_stays_as_it_is(model):
    assert as_graph(model, X[:1]) is model

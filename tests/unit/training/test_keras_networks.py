"""A network in a model is trained, saved and frozen as Keras does it."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi._core.network_function import as_function
from gpflow_gvi.training import Trainable
from gpflow_gvi.training.guard import LossTerms
from tests.tolerances import assert_close, assert_differ

N = 30
_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(N, 2))
Y = np.sin(X[:, :1]) + 0.1 * _RNG.normal(size=(N, 1))


def network(*first: Any, **options: Any) -> keras.Sequential:
    """Return the same network each time, which begins with other layers."""
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((2,)), *first, dense(4, "tanh", **options), dense(1)])


class Squares(Trainable):
    """Least squares."""

    num_data = N
    _term_names = ("Squares", "Nothing")

    def __init__(self, net: keras.Model) -> None:
        super().__init__()
        self.network = as_function(net)
        self.compile(keras.optimizers.SGD(0.01))

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        loss = tf.reduce_mean((self.network(X) - Y) ** 2)
        return loss, LossTerms(loss, tf.zeros([], loss.dtype))

    def _predictive_mean(self, X: tf.Tensor) -> tf.Tensor:
        return self.network(X)


# Values that layers keep beside their variables.


@pytest.mark.parametrize("how", ["load_weights", "set_weights", "backup"])
def test_assigned_values_reach_a_normalization(how: str, tmp_path: Any) -> None:
    normal = keras.layers.Normalization()
    net = network(normal)
    normal.adapt(3.0 + 2.0 * X)
    adapted, plain = Squares(net), Squares(network(keras.layers.Normalization()))
    before = plain.evaluate(X, Y, verbose=0)  # its graph is made
    if how == "set_weights":
        plain.set_weights(adapted.get_weights())
    elif how == "load_weights":
        adapted.save_weights(tmp_path / "a.weights.h5")
        plain.load_weights(tmp_path / "a.weights.h5")
    else:
        for model in (adapted, plain):
            backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
            model.fit(X, Y, verbose=0, callbacks=[backup])
    assert_close(plain.predict(X, verbose=0), adapted.predict(X, verbose=0))
    assert_close(plain.evaluate(X, Y, verbose=0), adapted.evaluate(X, Y, verbose=0))
    assert_differ(plain.evaluate(X, Y, verbose=0), before)


@pytest.mark.parametrize("frozen", [(0,), (0, 1)])
def test_weights_of_frozen_layers_are_saved_whatever_is_frozen(frozen: tuple[int, ...]) -> None:
    one, other = network(), network()
    other.set_weights([weight + 1.0 for weight in one.get_weights()])
    one.layers[frozen[0]].trainable = False
    other.layers[frozen[-1]].trainable = False
    Squares(other).set_weights(Squares(one).get_weights())
    for found, expected in zip(other.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


class Batches(keras.utils.PyDataset):
    """Batches of eight rows."""

    passes = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return X[8 * i : 8 * i + 8], Y[8 * i : 8 * i + 8, 0]

    def on_epoch_end(self) -> None:
        self.passes += 1


def test_a_pydataset_is_taken_as_by_keras() -> None:
    one, other, batches = Squares(network()), Squares(network()), Batches()
    losses = one.fit(batches, epochs=2, verbose=0).history["loss"]
    assert batches.passes >= 1
    expected = other.fit(X, Y, batch_size=8, shuffle=False, epochs=2, verbose=0).history["loss"]
    assert_close(losses, expected, precision=np.float32)
    predicted = one.predict(Batches(), verbose=0)
    assert_close(predicted, other.predict(X, verbose=0), precision=np.float32)


# What Keras has layers say of their weights.


def test_constraints_hold_after_each_step() -> None:
    net = network(kernel_constraint="non_neg", bias_constraint=keras.constraints.MaxNorm(0.01))
    model = Squares(net)
    model.compile(keras.optimizers.SGD(1.0))
    model.fit(X, Y, epochs=2, batch_size=10, verbose=0)
    kernel, bias, *_ = net.get_weights()
    assert kernel.min() == 0.0
    assert_close(np.linalg.norm(bias), 0.01, precision=np.float32)


def test_compile_takes_the_flags_of_layers() -> None:
    net = network()
    model = Squares(net)

    def moved() -> list[bool]:
        before = net.get_weights()
        model.compile(keras.optimizers.SGD(0.1))
        model.fit(X, Y, batch_size=None, verbose=0)
        return [bool(np.any(a != b)) for a, b in zip(before, net.get_weights(), strict=True)]

    net.layers[0].trainable = False
    assert moved() == [False, False, True, True]
    net.layers[0].trainable = True
    assert moved() == [True] * 4
    gpflow.set_trainable(model.network, False)
    model.network.take_flags()
    assert not model.trainable_variables

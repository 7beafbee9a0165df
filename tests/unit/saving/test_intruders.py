"""A folder can name what belongs to models and nothing else: no other class, no code."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

from gpflow_gvi.saving import load, save

from .things import Knot, Point, there_and_back


def test_registered_layers_are_asked_for(tmp_path):
    """Any imported package registers classes with Keras; the caller names those to be built."""

    @keras.saving.register_keras_serializable(package="tests")
    class Twice(keras.layers.Layer):
        def call(self, inputs):
            return 2.0 * inputs

    save(keras.Sequential([keras.Input((2,)), Twice(), keras.layers.Dense(1)]), tmp_path / "saved")
    with pytest.raises(ValueError, match=r"Twice.*custom_objects=\{'Twice': Twice\}"):
        load(tmp_path / "saved")
    loaded = load(tmp_path / "saved", custom_objects={"Twice": Twice})
    assert type(loaded.layers[0]) is Twice


def test_networks_with_operations_and_options_are_let_in(tmp_path):
    """What the lists have is found where Keras says that it is."""
    inputs = keras.Input((4, 4, 1))
    X = keras.layers.Conv2D(2, 2, activation="relu", kernel_regularizer="l2")(inputs)
    X = keras.layers.BatchNormalization()(keras.layers.SpatialDropout2D(0.1)(X))
    X = keras.layers.Flatten()(X)
    X = keras.layers.LeakyReLU()(2.0 * X + X[:, :1])
    X = keras.layers.Reshape((1, -1))(X)
    X = keras.layers.Bidirectional(keras.layers.GRU(2))(X)
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, keras.activations.gelu)])
    inner.compile("adam", "mse")
    network = keras.Model(inputs, inner(X))
    save(network, tmp_path / "saved")
    points = np.linspace(0.0, 1.0, 32).reshape(2, 4, 4, 1)
    expected = network(points, training=False)
    loaded = load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded(points, training=False), expected)


def test_custom_objects_are_asked_for(tmp_path):
    save([Point(1.0, np.ones(1)), Knot()], tmp_path / "saved")
    with pytest.raises(ValueError, match=r"Point.*custom_objects=\{'Point': Point\}"):
        load(tmp_path / "saved")
    own = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in (Point, Knot)}
    assert type(load(tmp_path / "saved", custom_objects=own)[1]) is Knot


def test_custom_objects_do_not_hide_those_of_packages(tmp_path):
    loaded = there_and_back(gpflow.kernels.Matern12(), tmp_path, custom_objects={"Matern12": Knot})
    assert type(loaded) is gpflow.kernels.Matern12

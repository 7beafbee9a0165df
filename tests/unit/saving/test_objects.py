"""Objects and networks come back as they were, and what was one object is one again."""

from __future__ import annotations

import dataclasses

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.kernels import FeatureMap
from gpflow_gvi.saving import load, save
from tests import networks
from tests.tolerances import assert_differ

from .things import (
    OWN,
    Fresh,
    Frozen,
    Knot,
    Point,
    plain_function,
    there_and_back,
)


def test_objects_of_all_kinds(tmp_path):
    kernel = gpflow.kernels.Matern12()
    things = [Point(1.5, np.ones(2)), Frozen(np.ones(1), kernel), kernel]
    point, frozen, loaded = there_and_back(things, tmp_path, custom_objects=OWN)
    assert type(point) is Point
    assert (point.x, point.y.tolist()) == (1.5, [1.0, 1.0])
    assert type(frozen) is Frozen
    assert frozen.kernel is loaded
    assert frozen.scale.tolist() == [1.0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.scale = None


def test_containers_that_tensorflow_wraps(tmp_path):
    module = Knot(parent="none")
    module.point, module.pair, module.table = Point(1.5, Knot("none")), (1, [2]), {"a": (3,)}
    loaded = there_and_back(module, tmp_path, custom_objects=OWN)
    assert type(loaded.point) is type(module.point)
    assert loaded.point.x == 1.5
    assert (loaded.pair, loaded.table) == ((1, [2]), {"a": (3,)})
    assert type(loaded.table) is type(module.table)


def test_states_that_live_for_a_moment_are_not_confused(tmp_path):
    loaded = there_and_back([Fresh(i) for i in range(20)], tmp_path, custom_objects=OWN)
    assert [part.value.stop for part in loaded] == list(range(20))


def test_modules_that_refer_to_each_other(tmp_path):
    knot = there_and_back(Knot(), tmp_path, custom_objects=OWN)
    assert [child.parent is knot for child in knot.children] == [True, True]
    assert knot.by_name["first"] is knot.children[0]
    assert knot.children[0] is not knot.children[1]
    assert knot.submodules == tuple(knot.children)
    assert type(knot.children) is type(Knot().children)  # TensorFlow's own, which it tracks
    assert knot.make().name == "knot_of_mine/made:0"
    assert not hasattr(knot, "compiled")


def test_what_is_one_stays_one_and_what_are_two_stay_two(tmp_path):
    variable, array = tf.Variable(1.0), np.ones(2)
    parameter = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())
    things = [variable, tf.Variable(1.0), variable, array, array.copy(), array]
    things += [parameter, gpflow.Parameter(1.0), parameter, parameter.unconstrained_variable]
    loaded = there_and_back(things, tmp_path)
    first = [[a is b for b in things].index(True) for a in things]
    assert [[a is b for b in loaded].index(True) for a in loaded] == first
    assert loaded[6].unconstrained_variable is loaded[9]


def test_what_a_class_leaves_out_of_copies(tmp_path):
    kernel = gpflow.kernels.Matern12()
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    model = gvi.models.PGVI(process, process, gpflow.likelihoods.Gaussian(), num_data=3)
    model.compile("sgd")
    loaded = there_and_back(model, tmp_path)
    with pytest.raises(RuntimeError, match="compile"):
        loaded.fit((np.zeros([3, 1]), np.zeros([3, 1])))
    assert loaded.regulariser.kernel is loaded.variational.kernel


# Networks.


def test_networks(tmp_path, rng):
    network, X = networks.regularised(keras), rng.normal(size=(5, 2)).astype(np.float32)
    for _ in range(3):
        network(X, training=True)  # moves the statistics
    first, second, other = there_and_back([network, network, networks.dense(keras)], tmp_path)
    assert first is second
    assert type(first) is type(network)
    np.testing.assert_array_equal(first(X), network(X))
    assert_differ(first(X), first(X, training=True))
    assert not set(map(id, other.weights)) & set(map(id, first.weights))


@pytest.mark.parametrize("frozen", [False, True])
def test_networks_as_functions(frozen, tmp_path, rng):
    X = rng.normal(size=(5, 2))
    network = networks.regularised(keras, F=2)
    network.layers[0].trainable = False
    mean = gvi.mean_functions.Network(network)
    kernel = FeatureMap(gpflow.kernels.Matern12(), mean.network)
    if frozen:
        gpflow.set_trainable(mean, False)
    loaded_mean, loaded_kernel = there_and_back((mean, kernel), tmp_path)
    assert loaded_mean.network is loaded_kernel.network
    assert list(loaded_mean.network.weights) == list(mean.network.weights)
    trainable = {name: w.trainable for name, w in loaded_mean.network.weights.items()}
    assert trainable == {name: w.trainable for name, w in mean.network.weights.items()}
    assert trainable == dict.fromkeys(trainable, not frozen)
    np.testing.assert_array_equal(loaded_mean(X), mean(X))
    np.testing.assert_array_equal(loaded_kernel(X), kernel(X))


def test_single_layers_inside_a_module(tmp_path, rng):
    module = networks.Mixed(keras)
    X = rng.normal(size=(5, 2))
    value = module(X)
    loaded = there_and_back(module, tmp_path, custom_objects={"Mixed": networks.Mixed})
    np.testing.assert_array_equal(loaded(X), value)
    assert len(loaded.layers[0].weights) == 2


def test_networks_of_the_user(tmp_path, rng):
    X = rng.normal(size=(5, 2))
    module = gvi.mean_functions.Network(networks.Perceptron())
    function = gvi.mean_functions.Network(plain_function)
    loaded = there_and_back([module, function], tmp_path, custom_objects=OWN)
    for before, after in zip([module, function], loaded, strict=True):
        np.testing.assert_array_equal(after(X), before(X))
    assert len(loaded[0].trainable_variables) == 2


def test_layers_of_the_user(tmp_path, rng):
    class Doubled(keras.layers.Layer):
        def call(self, X):
            return 2.0 * X

    network = keras.Sequential([keras.Input((2,)), Doubled(), keras.layers.Dense(1)])
    X = rng.normal(size=(5, 2)).astype(np.float32)
    save(network, tmp_path / "saved")
    loaded = load(tmp_path / "saved", custom_objects={"Doubled": Doubled})
    np.testing.assert_array_equal(loaded(X), network(X))
    with pytest.raises(ValueError, match=r"(?s)custom_objects.*Doubled|Doubled.*custom_objects"):
        load(tmp_path / "saved")

"""The adaptor: every kind of network as a GPflow module, against the network called by itself."""

from __future__ import annotations

import contextlib
import pickle
import threading

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from gpflow_gvi._core import network_function as adaptor
from gpflow_gvi._core.memo import memoised
from gpflow_gvi._core.mode import frozen, inference, training
from gpflow_gvi._core.network_function import NetworkFunction, in_precision
from gpflow_gvi._core.state import state
from tests import networks
from tests.tolerances import assert_close, assert_differ, assert_estimates

X = np.random.default_rng(0).normal(size=(6, 2))
WITH_WEIGHTS = pytest.mark.parametrize(
    "make", networks.WITH_WEIGHTS.values(), ids=networks.WITH_WEIGHTS
)


# What it computes, and in which precision.


@WITH_WEIGHTS
@pytest.mark.parametrize("own", ["float32", "float64"])
@pytest.mark.parametrize("given", ["float32", "float64"])
def test_computes_in_the_network_s_precision_and_returns_that_of_x(make, own, given):
    network = make(3, own)
    value = NetworkFunction(network)(X.astype(given))
    expected = network(tf.constant(X.astype(given).astype(own))).numpy()
    assert value.dtype == given
    np.testing.assert_array_equal(value, expected.astype(given))


@pytest.mark.parametrize("given", ["float32", "float64"])
def test_a_function_without_variables_computes_in_the_precision_of_x(given):
    value = NetworkFunction(lambda X: X * X)(X.astype(given))
    assert value.dtype == given
    np.testing.assert_array_equal(value, X.astype(given) * X.astype(given))


def test_in_precision_is_the_same_network_to_the_last_digit_of_the_new_one():
    inner = networks.regularised(keras)
    moving = inner.layers[-3].moving_mean
    moving.assign(np.linspace(0.1, 0.8, 8))
    outer = keras.Sequential([keras.Input((2,)), inner])
    W = [w.astype("float64") for w in outer.get_weights()]
    W = [w for w in W if w.shape != (2,)]  # the state of the dropout
    hidden = np.tanh(X @ W[0] + W[1])
    normal = (hidden - W[4]) / np.sqrt(W[5] + 1e-3) * W[2] + W[3]
    double = in_precision(outer)  # GPflow's default float is float64
    assert {variable.dtype for variable in NetworkFunction(double).variables} == {tf.float64}
    assert_close(NetworkFunction(double)(X), normal @ W[6] + W[7])
    single = in_precision(double, "float32")
    np.testing.assert_array_equal(single.get_weights()[0], W[0].astype("float32"))


def test_in_precision_keeps_what_a_normalization_has_adapted_to():
    normal = keras.layers.Normalization()
    outer = keras.Sequential([keras.Input((2,)), keras.Sequential([normal])])
    normal.adapt(3.0 + X)
    assert_close(in_precision(outer)(X), (X - 3.0 - X.mean(0)) / X.std(0), precision=np.float32)


def test_in_precision_computes_in_it_whatever_the_policy_was():
    dense = keras.layers.Dense(1, dtype="mixed_float16")
    network = keras.Sequential([keras.Input((2,)), dense])
    double = in_precision(network)
    assert {layer.compute_dtype for layer in double.layers} == {"float64"}
    kernel, bias = network.get_weights()
    assert_close(NetworkFunction(double)(X), X @ kernel.astype(float) + bias)


def test_in_precision_refuses_what_it_cannot_make_anew():
    with pytest.raises(
        TypeError, match=r"(?s)Perceptron.*a Keras model that knows its input_shape"
    ):
        in_precision(networks.Perceptron())
    with pytest.raises(TypeError, match="knows its input_shape"):
        in_precision(keras.Sequential([keras.layers.Dense(2)]))


def test_rows_are_reshaped_to_what_the_network_takes(rng):
    images = rng.normal(size=(5, 4, 3, 2)).astype("float32")
    convolution = keras.Sequential(
        [
            keras.Input((4, 3, 2)),
            keras.layers.Conv2D(2, 2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    expected = convolution(images)
    for rows in (images, images.reshape(5, 24), images.reshape(5, 12, 2)):
        np.testing.assert_array_equal(NetworkFunction(convolution)(rows), expected)
    flat = networks.dense(keras, D=24, dtype="float32")
    np.testing.assert_array_equal(NetworkFunction(flat)(images), flat(images.reshape(5, 24)))
    with pytest.raises(ValueError, match=r"rows of shape \(23,\).*takes rows of shape \(4, 3, 2\)"):
        NetworkFunction(convolution)(np.zeros((5, 23)))


def test_called_once_in_a_memoised_block_also_where_it_is_shared():
    calls = []
    function = NetworkFunction(lambda X: calls.append(X) or X)
    again = adaptor.as_function(function)
    inputs = tf.constant(X)
    with memoised():
        assert function(inputs) is again(inputs)
    assert len(calls) == 1


# Its weights.


def test_the_weights_are_the_network_s_own_and_each_is_listed_once():
    network = networks.dense(keras)
    function = NetworkFunction(network)
    own = networks.tensors(network.trainable_weights)
    for listed in (
        function.trainable_variables,
        tuple(gpflow.utilities.parameter_dict(function).values()),
    ):
        assert sorted(map(id, listed)) == sorted(map(id, own))


def test_names_are_the_numbers_and_names_of_the_weights():
    for _ in range(2):  # Keras goes on counting
        network = networks.dense(keras)
        weights = NetworkFunction(network).weights
        assert list(weights) == ["0.kernel", "1.bias", "2.kernel", "3.bias"]
        own = networks.tensors(network.trainable_weights)
        assert all(mine is its for mine, its in zip(weights.values(), own, strict=True))


def test_a_function_that_is_a_module_keeps_its_parameters_with_their_transforms():
    module = gpflow.functions.Linear(A=np.ones((2, 1)))
    function = NetworkFunction(module)
    assert function.trainable_parameters == (module.A, module.b)
    assert gpflow.utilities.parameter_dict(function)[".network.A"] is module.A


def test_moving_statistics_are_never_trained():
    function = NetworkFunction(networks.regularised(keras))
    trained = {id(v) for v in function.trainable_variables}
    gpflow.set_trainable(function, False)
    assert not function.trainable_variables
    gpflow.set_trainable(function, True)
    assert {id(v) for v in function.trainable_variables} == trained
    weights = networks.tensors(function.network.trainable_weights)
    others = {id(v) for v in networks.tensors(function.network.variables)} - trained
    assert trained == {id(v) for v in weights}
    assert len(others) >= 2  # mean and variance, and Keras 3's seed
    assert {id(v) for v in state(function)} == others


def test_layers_that_the_user_froze_stay_frozen():
    network = networks.dense(keras)
    network.layers[0].trainable = False
    function = NetworkFunction(network)
    gpflow.set_trainable(function, True)
    assert [tuple(v.shape) for v in function.trainable_variables] in (
        [(1,), (4, 1)],
        [(4, 1), (1,)],
    )
    assert not state(function)  # nothing that training changes
    copied = gpflow.utilities.deepcopy(function)
    assert len(copied.trainable_variables) == 2


# Networks that make their weights late.


def test_an_unbuilt_network_has_its_weights_after_the_first_call():
    network = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    function = NetworkFunction(network)
    assert not function.trainable_variables
    with pytest.raises(AttributeError, match="num_outputs"):
        _ = function.num_outputs
    function(X)
    assert len(function.trainable_variables) == 4
    assert function.num_outputs == 1


def test_an_unbuilt_network_is_not_built_behind_the_optimiser_s_back():
    late = r"(?s)Sequential 'late'.*made its weights only now.*keras\.Input.*build"
    function = NetworkFunction(keras.Sequential([keras.layers.Dense(1)], name="late"))
    with training(), pytest.raises(ValueError, match=late):
        function(X)
    function = NetworkFunction(keras.Sequential([keras.layers.Dense(1)], name="late"))
    with pytest.raises(ValueError, match=late):
        tf.function(function)(X)


def test_weights_that_no_attribute_leads_to_are_spoken_of():
    network = networks.dense(keras)
    with pytest.warns(UserWarning, match=r"(?s)function '<lambda>'.*kernel.*of Keras 3"):
        NetworkFunction(lambda X: 2.0 * network(X))(X)


# Training and inference.


def test_dropout_drops_in_training_only():
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5)])
    function, inputs = NetworkFunction(network), np.ones((200, 2), "float32")
    np.testing.assert_array_equal(function(inputs), inputs)
    with inference():
        np.testing.assert_array_equal(function(inputs), inputs)
    with training():
        dropped = function(inputs)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert_estimates(np.mean(dropped == 0.0), 0.5, 0.5 / np.sqrt(inputs.size))


@pytest.mark.parametrize("compiled", ["eager", "graph", "xla"])
def test_batch_normalisation_learns_its_statistics_as_keras_does(compiled):
    function, twin = (NetworkFunction(networks.regularised(keras, dropout=0.0)) for _ in range(2))
    twin.network.set_weights(function.network.get_weights())

    def step(inputs):
        with tf.GradientTape() as tape, training():
            value = function(inputs)
        return value, tape.gradient(value, function.trainable_variables)

    if compiled != "eager":
        step = tf.function(step, jit_compile=compiled == "xla")
    inputs = tf.constant(X, tf.float32)
    for _ in range(3):
        value, gradients = step(inputs)
        expected = twin.network(inputs, training=True)
    assert_close(value, expected)
    assert all(gradient is not None for gradient in gradients)
    statistics = [variable.numpy() for variable in state(twin)[:2]]
    assert_differ(statistics[0], np.zeros(8))
    for mine, theirs in zip(state(function)[:2], statistics, strict=True):
        assert_close(mine, theirs)
    expected = twin.network(inputs, training=False)
    assert_close(function(inputs), expected)


@pytest.mark.parametrize("how", ["set_trainable", "frozen"])
def test_a_frozen_network_keeps_its_statistics(how):
    module = gpflow.Module()
    module.function = NetworkFunction(networks.regularised(keras))
    before = [variable.numpy() for variable in state(module)]
    expected = module.function(X)
    if how == "set_trainable":
        gpflow.set_trainable(module, False)
    with training(), frozen(module) if how == "frozen" else contextlib.nullcontext():
        np.testing.assert_array_equal(module.function(X), expected)
    for variable, value in zip(state(module), before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_networks_that_take_the_argument_receive_training():
    told = []

    def asks(X, training):
        told.append(training)
        return X

    NetworkFunction(asks)(X)
    with training():
        NetworkFunction(asks)(X)
    assert told == [False, True]


# Copies.


def copies():
    return {
        "deepcopy": gpflow.utilities.deepcopy,
        "pickle": lambda function: pickle.loads(pickle.dumps(function)),
    }


@pytest.mark.parametrize("copy", copies().values(), ids=copies())
@WITH_WEIGHTS
def test_a_copy_has_weights_of_its_own_which_are_those_of_its_network(make, copy):
    function = NetworkFunction(make())
    copied, before = copy(function), function(X).numpy()
    np.testing.assert_array_equal(copied(X), before)
    assert list(copied.weights) == list(function.weights)
    for weight in copied.trainable_variables:
        weight.assign_add(0.3 * tf.ones_like(weight))
    assert_differ(copied(X), before)
    np.testing.assert_array_equal(function(X), before)


@pytest.mark.parametrize("copy", copies().values(), ids=copies())
def test_a_copy_of_a_part_of_a_model_keeps_its_names_when_it_is_called(copy):
    # Keras 3 renames the variables of such a copy then.
    function = NetworkFunction(networks.hidden_layer(keras))
    function(X)
    copied = copy(function)
    assert list(copied.weights) == list(function.weights)
    np.testing.assert_array_equal(copied(X), function(X))
    assert list(copied.weights) == list(function.weights)
    for mine, original in zip(copied.weights.values(), function.weights.values(), strict=True):
        assert mine is not original
        np.testing.assert_array_equal(mine, original)


@pytest.mark.parametrize("copy", copies().values(), ids=copies())
def test_a_copy_has_the_moving_statistics_and_random_states(copy):
    function = NetworkFunction(networks.regularised(keras))
    with training():
        function(X)
    copied = copy(function)
    for mine, theirs in zip(state(function), state(copied), strict=True):
        assert mine is not theirs
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(copied(X), function(X))


def test_a_copy_of_frozen_weights_is_frozen_and_can_be_thawed():
    function = NetworkFunction(networks.dense(keras))
    count = len(function.trainable_variables)
    gpflow.set_trainable(function, False)
    copied = gpflow.utilities.deepcopy(function)
    copied(X)
    assert len(copied.trainable_variables) == 0
    gpflow.set_trainable(copied, True)
    assert len(copied.trainable_variables) == count


def test_a_network_in_two_places_is_in_two_places_of_the_copy():
    model = gpflow.Module()
    function = NetworkFunction(networks.dense(keras))
    model.here, model.there = function, function
    model.elsewhere = NetworkFunction(function.network)
    copied = gpflow.utilities.deepcopy(model)
    assert copied.here is copied.there
    assert copied.here.network is copied.elsewhere.network
    assert len(copied.trainable_variables) == 4


def test_a_model_of_the_user_s_own_class_is_copied():
    class Own(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.inner, self.norm = keras.layers.Dense(3), keras.layers.BatchNormalization()

        def call(self, X, training=None):
            return self.norm(self.inner(X), training=training)

    function = NetworkFunction(Own())
    with memoised():
        function(X)
    function.weights["0.kernel"].assign_add(tf.ones([2, 3]))
    copied = gpflow.utilities.deepcopy(function)
    np.testing.assert_array_equal(copied(X), function(X))
    assert {id(v) for v in copied.variables}.isdisjoint(id(v) for v in function.variables)


class OwnLayer(keras.layers.Layer):
    """A layer of which Keras can make no other, as it hands `__init__` more than that takes."""

    def __init__(self, units):
        super().__init__()
        self.inner, self._norm = keras.layers.Dense(units), keras.layers.BatchNormalization()

    def build(self, shape):
        self.scale = self.add_weight(shape=(1,), initializer="ones")
        self.kept = self.add_weight(shape=(1,), initializer="ones", trainable=False)

    def call(self, X):
        return self._norm(self.inner(X)) * self.scale * self.kept


class OwnModel(keras.Model):
    """A model as it is written in tutorials, of which Keras can make no other, either."""

    def __init__(self, units, within=None):
        super().__init__()
        self.first = OwnLayer(4)
        self.several = [keras.layers.Dense(3, "tanh"), OwnLayer(units)]
        self.named = {"a": keras.Sequential([keras.layers.Dense(units)])}
        self.again, self.within, self.units = self.first, within, units
        self.offset = self.add_weight(shape=(units,), initializer="ones")

    def call(self, X, training=None):
        X = self.first(X) if self.within is None else self.first(self.within(X))
        X = tf.nn.relu(X)  # which takes no symbolic tensor
        for layer in self.several:
            X = layer(X, training=training)
        return self.named["a"](X) + self.offset


@pytest.mark.slow
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_model_without_a_configuration_is_copied(is_trained, is_nested):
    model = OwnModel(2, OwnModel(5) if is_nested else None)
    if is_trained:
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.fit(X, X, epochs=2, verbose=0)
    function = NetworkFunction(model)
    function(X)
    copied = gpflow.utilities.deepcopy(function)
    np.testing.assert_array_equal(copied(X), function(X))
    with training():
        np.testing.assert_array_equal(copied(X), function(X))
    assert [w.shape for w in copied.weights.values()] == [
        w.shape for w in function.weights.values()
    ]
    assert {id(v) for v in copied.variables}.isdisjoint(id(v) for v in function.variables)
    assert {id(v) for v in copied.state}.isdisjoint(id(v) for v in function.state)
    assert copied.network.again is copied.network.first
    before = model.get_weights()
    if not is_trained:
        copied.network.compile("sgd", "mse")
    copied.network.fit(X, X, epochs=2, verbose=0)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert_differ(copied(X), function(X))


def test_a_model_that_cannot_be_copied_is_named():
    model = OwnModel(2)
    model.lock = threading.Lock()
    function = NetworkFunction(model)
    function(X)
    with pytest.raises(TypeError, match=r"OwnModel '.*' cannot be copied.*take \*\*kwargs"):
        gpflow.utilities.deepcopy(function)


# Bad input.


def test_a_network_of_several_inputs_is_refused_when_it_is_wrapped():
    inputs = [keras.Input((1,)), keras.Input((1,))]
    network = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(inputs)))
    with pytest.raises(ValueError, match=r"has 2 inputs; it must have one\. Pass it to learn"):
        NetworkFunction(network)


def test_models_of_tf_keras_are_refused_and_can_be_functions():
    network = tf_keras.Sequential([tf_keras.Input((2,)), tf_keras.layers.Dense(1)])
    with pytest.raises(TypeError, match=r"of tf_keras; it must be of Keras 3.*lambda X"):
        NetworkFunction(network)
    function = NetworkFunction(lambda X: network(X))
    with pytest.warns(UserWarning, match="variables that are not trained"):
        value = function(X.astype("float32"))
    np.testing.assert_array_equal(value, network(X))


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        (3, TypeError, r"network is 3; it must be a model of Keras 3"),
        (lambda X: X[:, 0], ValueError, r"returns shape \(6,\).*must be \[N, F\].*Dense"),
        (lambda X: X[:, None], ValueError, r"returns shape \(6, 1, 2\).*Flatten"),
        (lambda X: {"mean": X}, TypeError, "returns a dict; it must return one tensor"),
        (lambda X: (X, X), TypeError, "returns a tuple"),
    ],
    ids=["not callable", "rank 1", "rank 3", "dict", "tuple"],
)
def test_bad_networks_are_named(network, error, message):
    with pytest.raises(error, match=message):
        NetworkFunction(network)(X)

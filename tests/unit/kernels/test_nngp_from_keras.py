"""Kernels read from Keras models: the same for Keras 3 and tf_keras, and for wide ones of them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from gpflow_gvi.kernels.nngp import (
    NNGP,
    AveragePooling2D,
    Conv2D,
    Dense,
    Erf,
    Flatten,
    GlobalAveragePooling2D,
    ReLU,
)
from tests.tolerances import assert_close, assert_estimates

IMAGE = (8, 6, 2)


@pytest.fixture(params=[keras, tf_keras], ids=["keras3", "tf_keras"])
def k(request) -> Any:
    return request.param


def lenet(k: Any) -> list[Any]:
    L = k.layers
    return [
        L.Conv2D(4, 3, strides=(2, 1), activation="relu"),
        L.AveragePooling2D(2, strides=1, name="shrink"),
        L.Conv2D(3, (2, 3), padding="same", use_bias=False),
        L.Activation("tanh"),
        L.Dropout(0.3),
        L.Flatten(),
        L.Dense(5),
        L.ReLU(),
        L.Dense(2, activation="linear"),
    ]


EXPECTED = [
    Conv2D(3, strides=(2, 1), padding="valid", weight_variance=2.0, bias_variance=0.1),
    ReLU(),
    AveragePooling2D(2, 1),
    Conv2D((2, 3)),
    Erf(),
    Flatten(),
    Dense(2.0, 0.1),
    ReLU(),
    Dense(1.0, 0.1),
]


def sequential(k: Any, *layers: Any, shape: tuple[int | None, ...] = IMAGE) -> Any:
    return k.Sequential([k.layers.Input(shape), *layers])


def functional(k: Any, *layers: Any, shape: tuple[int | None, ...] = IMAGE) -> Any:
    first = last = k.layers.Input(shape)
    for layer in layers:
        last = layer(last)
    return k.Model(first, last)


@pytest.mark.parametrize("build", [sequential, functional])
def test_reads_every_layer(k, build, rng):
    kernel = NNGP.from_keras(build(k, *lenet(k)))
    assert kernel.input_shape == IMAGE
    assert [type(layer) for layer in kernel.layers] == [type(layer) for layer in EXPECTED]
    X = rng.normal(size=(4, *IMAGE))
    assert_close(kernel(X), NNGP(EXPECTED)(X))
    rows = X.reshape(4, -1)
    assert_close(kernel(rows), kernel(X))


def test_wide_model_has_this_covariance(k, rng):
    """Outputs of wide models whose weights are drawn again with the variances of the kernel."""
    L = k.layers
    width, number = 100, 40
    model = functional(
        k,
        L.Conv2D(width, 3, padding="same", activation="relu"),
        L.AveragePooling2D(2),
        L.Conv2D(width, 2, strides=2),
        L.ReLU(),
        L.GlobalAveragePooling2D(),
        L.Dense(width),
    )
    kernel = NNGP.from_keras(model)
    X = rng.normal(size=(3, *IMAGE))
    weighted = [layer for layer in kernel.layers if isinstance(layer, Conv2D | Dense)]
    expected = kernel(X).numpy()
    grams = []
    for _ in range(number):
        drawn = []
        for layer, weights in zip(weighted, model.weights[::2], strict=True):
            shape = tuple(weights.shape)
            deviation = np.sqrt(layer.weight_variance.numpy() / np.prod(shape[:-1]))
            drawn.append(rng.normal(scale=deviation, size=shape))
            drawn.append(rng.normal(scale=np.sqrt(layer.bias_variance.numpy()), size=shape[-1]))
        model.set_weights(drawn)
        outputs = np.asarray(model(tf.constant(X, tf.float32)), dtype=float)
        grams.append(outputs @ outputs.T / width)
    error = np.std(grams, axis=0) / np.sqrt(number)
    assert error.max() < 0.05 * expected.max()
    assert_estimates(np.mean(grams, axis=0), expected, error)


def test_image_that_is_flattened_first(k, rng):
    """The usual perceptron on images of one channel without an axis for it."""
    model = sequential(k, k.layers.Flatten(), k.layers.Dense(9), shape=(5, 4))
    kernel = NNGP.from_keras(model)
    X = rng.normal(size=(3, 5, 4))
    rows = X.reshape(3, 20)
    assert_close(kernel(X), 0.1 + rows @ rows.T / 20)
    assert_close(kernel(rows), kernel(X))
    assert_close(kernel(X, full_cov=False), kernel.K_diag(rows))


def test_images_of_any_size(k, rng):
    L = k.layers
    model = sequential(k, L.Conv2D(4, 3), L.GlobalAveragePooling2D(), shape=(None, None, 3))
    kernel = NNGP.from_keras(model)
    assert kernel.input_shape is None
    assert isinstance(kernel.layers[-1], GlobalAveragePooling2D)
    for size in (4, 6):
        assert kernel(rng.normal(size=(2, size, size, 3))).shape == (2, 2)


def test_model_without_a_shape_yet(k, rng):
    kernel = NNGP.from_keras(
        k.Sequential([k.layers.Dense(3, activation="relu"), k.layers.Dense(1)])
    )
    assert kernel.input_shape is None
    assert kernel(rng.normal(size=(2, 7))).shape == (2, 2)


def test_keras_is_not_imported():
    """Only a model brings Keras in; `read` looks at names."""
    from gpflow_gvi.kernels.nngp import from_keras

    assert not {"keras", "tf_keras"} & set(vars(from_keras))


def bad_layers(k: Any) -> dict[str, tuple[list[Any], str]]:
    L = k.layers
    end = [L.Flatten(), L.Dense(1)]

    def my_own(x: Any) -> Any:
        return x

    class Dense2(L.Dense):
        pass

    return {
        "max pooling": (
            [L.Conv2D(2, 3), L.ReLU(), L.MaxPooling2D(2, name="pool"), *end],
            r'Layer 2 "pool" \(MaxPooling2D\): it has no counterpart here.*AveragePooling2D, Conv',
        ),
        "subclass": ([L.Flatten(), Dense2(3, name="own")], r'Layer 1 "own" \(Dense2\)'),
        "activation": (
            [*end, L.Dense(3, activation="softmax", name="head")],
            r'Layer 2 "head" \(Dense\): the activation \'softmax\'.*linear, relu, tanh.*logits',
        ),
        "own activation": ([*end, L.Activation(my_own)], "the activation 'my_own'"),
        "clipped": ([L.Conv2D(2, 3), L.ReLU(6.0), *end], r"\(ReLU\): only max\(0, x\) is taken"),
        "leaky": ([L.Conv2D(2, 3), L.ReLU(negative_slope=0.1), *end], "negative_slope"),
        "dilation": (
            [L.Conv2D(2, 3, dilation_rate=2, name="wide"), *end],
            r'Layer 0 "wide" \(Conv2D\): dilation_rate=\(2, 2\) is not taken, only',
        ),
        "groups": ([L.Conv2D(2, 3, groups=2), *end], "groups=2 is not taken, only groups=1"),
        "pooling at the border": (
            [L.Conv2D(2, 3), L.AveragePooling2D(2, padding="same"), *end],
            r"Layer 1 .* \(AveragePooling2D\): padding='same' is not taken, only padding='valid'",
        ),
        "keepdims": (
            [L.Conv2D(2, 3), L.GlobalAveragePooling2D(keepdims=True), *end],
            r"Layer 1 .*keepdims=True is not taken",
        ),
        "dense on pixels": (
            [L.Conv2D(2, 3), L.Dense(2, name="each"), *end],
            r'Layer 1 "each" \(Dense\): it takes vectors, but gets images',
        ),
        "two activations": (
            [L.Conv2D(2, 3, activation="relu"), L.Activation("tanh", name="again"), *end],
            r'Layer 1 "again" \(Activation\): its inputs must be Gaussian',
        ),
        "activation of the flattened": (
            [L.Conv2D(2, 3), L.Flatten(), L.ReLU(name="late")],
            r'Layer 2 "late" \(ReLU\): its inputs must be Gaussian',
        ),
        "images at the end": (
            [L.Conv2D(2, 3, name="last")],
            r'Layer 0 "last" \(Conv2D\), the last, gives images',
        ),
        "nothing": ([L.Dropout(0.1)], "no layers with weights"),
    }


@pytest.mark.parametrize("name", bad_layers(keras))
def test_layer_that_cannot_be_taken(k, name):
    layers, message = bad_layers(k)[name]
    with pytest.raises(ValueError, match=message):
        NNGP.from_keras(sequential(k, *layers))


def test_channels_first(k):
    convolution = k.layers.Conv2D(2, 3, data_format="channels_first")
    model = k.Sequential([convolution, k.layers.Flatten()])
    with pytest.raises(ValueError, match="data_format='channels_first' is not taken"):
        NNGP.from_keras(model)


def branched(k: Any) -> Any:
    start = k.layers.Input((4,))
    first = k.layers.Dense(3, name="left")(start)
    second = k.layers.Dense(3, name="right")(start)
    return k.Model(start, k.layers.Add()([first, second]))


def skipping(k: Any) -> Any:
    start = k.layers.Input((4,))
    middle = k.layers.Dense(4, name="middle")(start)
    return k.Model(start, k.layers.Dense(1)(k.layers.Add()([middle, start])))


def repeated(k: Any) -> Any:
    start, layer = k.layers.Input((4,)), k.layers.Dense(4, name="twice")
    return k.Model(start, layer(layer(start)))


def two_outputs(k: Any) -> Any:
    start = k.layers.Input((4,))
    middle = k.layers.Dense(3)(start)
    return k.Model(start, [middle, k.layers.Dense(1)(middle)])


def two_inputs(k: Any) -> Any:
    starts = [k.layers.Input((4,)), k.layers.Input((4,))]
    return k.Model(starts, k.layers.Dense(1)(k.layers.Concatenate()(starts)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (branched, r'Layer 1 "left" \(Dense\): its output is not .* single chain'),
        (skipping, r'Layer 1 "middle" \(Dense\): its output is not'),
        (repeated, r'Layer 1 "twice" \(Dense\): its output is not'),
        (two_outputs, "The model has 2 outputs"),
        (two_inputs, "The model has 2 inputs"),
    ],
)
def test_graph_that_is_no_chain(k, build, message):
    with pytest.raises(ValueError, match=message):
        NNGP.from_keras(build(k))


def test_model_that_does_not_list_its_layers(k):
    class Own(k.Model):
        pass

    for model in (Own(), lambda x: x):
        with pytest.raises(TypeError, match="must be a Sequential or functional Keras model"):
            NNGP.from_keras(model)

"""Kernels of infinitely wide networks: against quadrature, wide networks and loops over pixels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.config import Config, as_context

from gpflow_gvi.kernels.nngp import (
    NNGP,
    AveragePooling2D,
    Conv2D,
    Dense,
    Erf,
    Flatten,
    GlobalAveragePooling2D,
    Layer,
    ReLU,
    tiles,
)

Array = np.ndarray

IMAGE = (5, 4, 2)

DENSE: dict[str, Callable[[], list[Layer]]] = {
    "relu": lambda: [Dense(1.8, 0.3), ReLU(), Dense(1.6), ReLU(), Dense(0.7, 0.1)],
    "erf": lambda: [Dense(2.5, 0.2), Erf(), Dense(1.5, 0.4), Erf(), Dense(1.3)],
}

IMAGES: dict[str, Callable[[], list[Layer]]] = {
    "flatten first": lambda: [Flatten(), Dense(1.8, 0.3), ReLU(), Dense()],
    "same": lambda: [Conv2D(3, bias_variance=0.2), ReLU(), Conv2D((2, 3)), Erf(), Flatten()],
    "valid": lambda: [
        Conv2D((3, 2), padding="valid", weight_variance=1.7, bias_variance=0.1),
        ReLU(),
        Flatten(),
        Dense(1.4, 0.2),
        Erf(),
        Dense(),
    ],
    "strides": lambda: [
        Conv2D(2, bias_variance=0.1),
        ReLU(),
        Conv2D(3, strides=2, bias_variance=0.2),
        ReLU(),
        Flatten(),
    ],
    "valid strides": lambda: [
        Conv2D(2, strides=(2, 1), padding="valid", bias_variance=0.3),
        Erf(),
        Flatten(),
        Dense(),
    ],
    "pooling": lambda: [
        Conv2D(3, bias_variance=0.1),
        ReLU(),
        AveragePooling2D(2),
        Conv2D(2, bias_variance=0.2),
        Erf(),
        Flatten(),
        Dense(),
    ],
    "overlapping pooling": lambda: [
        Conv2D(2, bias_variance=0.1),
        AveragePooling2D((2, 3), strides=(1, 1)),
        ReLU(),
        Conv2D(3, strides=2, bias_variance=0.1),
        ReLU(),
        AveragePooling2D((2, 1), strides=1),
        Flatten(),
    ],
    "global": lambda: [
        Conv2D(3, bias_variance=0.1),
        ReLU(),
        Conv2D(2, strides=2, bias_variance=0.4),
        Erf(),
        GlobalAveragePooling2D(),
        Dense(1.2),
        ReLU(),
        Dense(),
    ],
    "pooling and global": lambda: [
        AveragePooling2D((2, 1)),
        Conv2D(2, padding="valid", bias_variance=0.3),
        GlobalAveragePooling2D(),
        Erf(),
    ],
}

NETWORKS = DENSE | IMAGES

SMALL_TILE = 100
"""So few covariances that a tile is one to five pairs of these images."""


def also_tiled(names: list[str], also: list[str]) -> pytest.MarkDecorator:
    """Parametrise by the names of networks, once more with tiles for some of them."""
    return pytest.mark.parametrize(
        ("name", "tile"),
        [(name, tiles.TILE) for name in names] + [(name, SMALL_TILE) for name in also],
    )


@pytest.fixture(autouse=True)
def _tiles(request, monkeypatch):
    if "tile" in request.fixturenames:
        monkeypatch.setattr(tiles, "TILE", request.getfixturevalue("tile"))


def inputs(name: str, number: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=(number, *(IMAGE if name in IMAGES else (6,))))


# --- The definition, written out with loops over pixels ------------------------------------------


def variances(layer: Dense | Conv2D) -> tuple[float, float]:
    bias = 0.0 if layer.bias_variance is None else float(layer.bias_variance.numpy())
    return float(layer.weight_variance.numpy()), bias


def expectation(layer: Layer, k11: Array, k12: Array, k22: Array) -> Array:
    if isinstance(layer, Erf):
        return 2 / np.pi * np.arcsin(2 * k12 / np.sqrt((1 + 2 * k11) * (1 + 2 * k22)))
    r = np.sqrt(k11 * k22)
    theta = np.arccos(np.clip(k12 / r, -1.0, 1.0))
    return r * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)


def patches(layer: Layer, shape: tuple[int, int]) -> list[list[list[tuple[int, int]]]]:
    """The pixels under the filter or window, for each output pixel; outside ones as well."""
    window = layer.kernel_size if isinstance(layer, Conv2D) else layer.pool_size
    starts = []
    for size, length, stride in zip(shape, window, layer.strides, strict=True):
        before, after = 0, size - length
        if isinstance(layer, Conv2D) and layer.padding == "same":
            lacking = max((-(-size // stride) - 1) * stride + length - size, 0)
            before = lacking // 2
            after = size - length + lacking - before
        starts.append(range(-before, after + 1, stride))
    return [
        [[(i + a, j + b) for a in range(window[0]) for b in range(window[1])] for j in starts[1]]
        for i in starts[0]
    ]


def averaged(layer: Layer, K: Array) -> Array:
    """Averages over patches of K[p, p'], as functions that are zero outside."""
    height, width = K.shape[:2]

    def at(p: tuple[int, int], q: tuple[int, int]) -> float:
        inside = all(0 <= r < height and 0 <= c < width for r, c in (p, q))
        return K[p + q] if inside else 0.0

    under = patches(layer, (height, width))
    result = np.zeros((len(under), len(under[0])) * 2)
    for i, j, k, m in np.ndindex(*result.shape):
        first, second = under[i][j], under[k][m]
        if isinstance(layer, Conv2D):  # one weight for each position in the filter
            pairs = list(zip(first, second, strict=True))
        else:
            pairs = [(p, q) for p in first for q in second]
        result[i, j, k, m] = np.mean([at(p, q) for p, q in pairs])
    return result


def definition(layers: list[Layer], x: Array, y: Array) -> float:
    """k(x, y) from the covariances of all pairs of pixels of (x, x), (x, y) and (y, y)."""
    Ks = [np.tensordot(a, b, axes=(-1, -1)) / a.shape[-1] for a, b in ((x, x), (x, y), (y, y))]
    for layer in layers:
        if isinstance(layer, Dense):
            w, b = variances(layer)
            Ks = [b + w * K for K in Ks]
        elif isinstance(layer, Conv2D):
            w, b = variances(layer)
            Ks = [b + w * averaged(layer, K) for K in Ks]
        elif isinstance(layer, AveragePooling2D):
            Ks = [averaged(layer, K) for K in Ks]
        elif isinstance(layer, GlobalAveragePooling2D):
            Ks = [np.mean(K) for K in Ks]
        elif isinstance(layer, Flatten):
            Ks = [np.mean(np.einsum("ijij->ij", K)) for K in Ks]
        else:
            own, other = (K if np.ndim(K) == 0 else np.einsum("ijij->ij", K) for K in Ks[::2])
            sides = ((own, own), (own, other), (other, other))
            Ks = [
                expectation(layer, p[..., None, None] if np.ndim(p) else p, K, q)
                for K, (p, q) in zip(Ks, sides, strict=True)
            ]
    return float(Ks[1])


@also_tiled([*NETWORKS], ["valid strides", "overlapping pooling", "global"])
def test_agrees_with_the_definition(name, tile, rng):
    X, X2 = inputs(name, 5, rng), inputs(name, 3, rng)
    layers = NETWORKS[name]()
    kernel = NNGP(layers)
    expected = [[definition(layers, x, y) for y in X2] for x in X]
    np.testing.assert_allclose(kernel(X, X2), expected, rtol=1e-12)
    expected = [[definition(layers, x, y) for y in X] for x in X]
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(expected), rtol=1e-12)


# --- Where formulas come from ---------------------------------------------------------------------


@pytest.mark.parametrize("layer", [ReLU(), Erf()], ids=["relu", "erf"])
@pytest.mark.parametrize(
    ("k11", "correlation", "k22"),
    [(1.3, 0.6, 0.4), (0.2, -0.7, 5.0), (2.0, 0.0, 2.0), (1.5, 0.999, 1.4)],
)
def test_activation_is_an_expectation(layer, k11, correlation, k22):
    """E[φ(u)φ(v)] by integration over the plane, v = ρ-part of u plus an independent one."""
    function = {"ReLU": lambda u: max(u, 0.0), "Erf": scipy.special.erf}[type(layer).__name__]

    def integrand(s: float, t: float) -> float:
        u = np.sqrt(k11) * t
        v = np.sqrt(k22) * (correlation * t + np.sqrt(1 - correlation**2) * s)
        return function(u) * function(v) * np.exp(-0.5 * (s * s + t * t)) / (2 * np.pi)

    # The kink of v lies at s = -ρt/√(1-ρ²): the inner integral is split there.
    def inner(t: float) -> float:
        kink = np.clip(-correlation * t / np.sqrt(1 - correlation**2), -9.0, 9.0)
        parts = ((-9.0, kink), (kink, 9.0))
        return sum(scipy.integrate.quad(integrand, *part, args=(t,))[0] for part in parts)

    expected = sum(scipy.integrate.quad(inner, *part)[0] for part in ((-9.0, 0.0), (0.0, 9.0)))
    K = correlation * np.sqrt(k11 * k22)
    found = layer.expectation(*(tf.constant(part, dtype=tf.float64) for part in (K, k11, k22)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_one_hidden_layer_of_relu_is_half_the_arc_cosine_kernel(rng):
    X, X2 = rng.normal(size=(7, 3)), rng.normal(size=(4, 3))
    arc_cosine = gpflow.kernels.ArcCosine(1, weight_variances=1.7 / 3, bias_variance=0.3)
    kernel = NNGP([Dense(1.7, 0.3), ReLU(), Dense(2.0)])
    np.testing.assert_allclose(kernel(X, X2), arc_cosine(X, X2), rtol=1e-7)
    np.testing.assert_allclose(kernel(X, full_cov=False), arc_cosine(X, full_cov=False), rtol=1e-7)


def wide_network(layers: list[Layer], X: Array, width: int, rng: np.random.Generator) -> Array:
    """The last hidden units of a random network, on scale: their mean product estimates k."""
    units = X
    for layer in layers:
        if isinstance(layer, Dense | Conv2D):
            w, b = variances(layer)
            window = layer.kernel_size if isinstance(layer, Conv2D) else ()
            fan_in = int(np.prod(window)) * units.shape[-1]
            shape = (*window, units.shape[-1], width)
            weights = rng.normal(scale=np.sqrt(w / fan_in), size=shape)
            if window:
                units = tf.nn.conv2d(units, weights, layer.strides, layer.padding.upper()).numpy()
            else:
                units = units @ weights
            units = units + rng.normal(scale=np.sqrt(b), size=width)
        elif isinstance(layer, AveragePooling2D):
            units = tf.nn.avg_pool2d(units, layer.pool_size, layer.strides, "VALID").numpy()
        elif isinstance(layer, GlobalAveragePooling2D):
            units = units.mean(axis=(1, 2))
        elif isinstance(layer, Flatten):
            units = units.reshape(len(units), -1)
        else:
            units = np.maximum(units, 0) if isinstance(layer, ReLU) else scipy.special.erf(units)
    return units


@pytest.mark.parametrize("name", [*DENSE, "same", "strides", "pooling", "overlapping pooling"])
def test_wide_random_networks_have_this_covariance(name, rng):
    """The products of hidden units, averaged over units and networks, with their standard error."""
    X, layers = inputs(name, 3, rng), NETWORKS[name]()
    width, number = (300, 40) if name in DENSE else (60, 40)
    grams = []
    for _ in range(number):
        units = wide_network(layers, X, width, rng)
        grams.append(units @ units.T / units.shape[-1])
    deviation = np.std(grams, axis=0) / np.sqrt(number)
    expected = NNGP(layers)(X).numpy()
    # Beside the noise there is the bias of a finite width, of the order of its inverse.
    bias = 0.5 * np.sqrt(np.outer(np.diag(expected), np.diag(expected))) / width
    assert np.all(deviation < 0.1 * np.abs(np.diag(expected)).max()), "a check that says nothing"
    assert np.all(np.abs(np.mean(grams, axis=0) - expected) < 4.5 * deviation + bias)


# --- As a kernel ----------------------------------------------------------------------------------


@also_tiled([*NETWORKS], ["same"])
def test_is_a_covariance(name, tile, rng):
    """Symmetric, positive semi-definite, with the diagonal that K_diag gives."""
    X = inputs(name, 7, rng)
    X = np.concatenate([X, X[:2], -X[:2], 1e-6 * X[:1], 1e3 * X[:1], 0 * X[:1]])
    kernel = NNGP(NETWORKS[name]())
    K = kernel(X).numpy()
    np.testing.assert_allclose(K, K.T, rtol=1e-13)
    np.testing.assert_allclose(np.diag(K), kernel(X, full_cov=False), rtol=1e-13)
    np.testing.assert_allclose(np.diag(kernel(X, X.copy())), np.diag(K), rtol=1e-6)
    assert np.linalg.eigvalsh(K).min() > -1e-13 * K.max()


@pytest.mark.parametrize("name", IMAGES)
def test_rows_of_numbers_are_images(name, rng):
    X, X2 = inputs(name, 4, rng), inputs(name, 3, rng)
    rows, rows2 = (part.reshape(len(part), -1) for part in (X, X2))
    kernel = NNGP(NETWORKS[name](), input_shape=IMAGE)
    expected = NNGP(NETWORKS[name]())(X, X2)
    for first, second in ((rows, rows2), (X, rows2), (rows, X2)):
        np.testing.assert_allclose(kernel(first, second), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel(rows), kernel(X), rtol=1e-14)
    np.testing.assert_allclose(kernel(rows, full_cov=False), kernel.K_diag(X), rtol=1e-14)


@also_tiled(["relu", "same"], ["same"])
def test_leading_axes(name, tile, rng):
    """[batch..., N, D] as in GPflow's own kernels."""
    kernel = NNGP(NETWORKS[name](), input_shape=IMAGE if name in IMAGES else 6)
    rows = inputs(name, 6, rng).reshape(6, -1)
    batches, others = rows.reshape(3, 2, -1), inputs(name, 2, rng).reshape(2, -1)
    np.testing.assert_allclose(kernel(batches), [kernel(batch) for batch in batches])
    np.testing.assert_allclose(kernel(batches, full_cov=False).numpy().ravel(), kernel.K_diag(rows))
    expected = kernel(rows, others).numpy()
    np.testing.assert_allclose(kernel(batches, others).numpy(), expected.reshape(3, 2, 2))
    np.testing.assert_allclose(kernel(others, batches).numpy(), expected.T.reshape(2, 3, 2))


def test_active_dims_and_sums(rng):
    X = rng.normal(size=(5, 4))
    kernel = NNGP(DENSE["relu"](), active_dims=[2, 0])
    np.testing.assert_allclose(kernel(X), NNGP(DENSE["relu"]())(X[:, [2, 0]]), rtol=1e-14)
    noise = gpflow.kernels.SquaredExponential(active_dims=[1])
    np.testing.assert_allclose((kernel + noise)(X), kernel(X) + noise(X), rtol=1e-14)
    np.testing.assert_allclose((kernel * noise)(X), kernel(X) * noise(X), rtol=1e-14)


def test_convolution_of_one_pixel_is_dense_at_each(rng):
    X = inputs("same", 4, rng)
    found = NNGP([Conv2D(1, weight_variance=1.4, bias_variance=0.2), ReLU(), Flatten()])(X)
    dense = NNGP([Dense(1.4, 0.2), ReLU()])
    pixels = X.reshape(len(X), -1, IMAGE[-1])
    expected = np.mean([dense(pixels[:, p]) for p in range(pixels.shape[1])], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_diagonal_needs_no_gram_matrix(rng):
    X = rng.normal(size=(60_000, 2))  # its Gram matrix would have 29 GB
    assert NNGP(DENSE["relu"]()).K_diag(X).shape == (60_000,)


@also_tiled(["relu", "erf", "same", "pooling"], ["same"])
def test_float32(name, tile, rng):
    X = inputs(name, 5, rng)
    expected = NNGP(NETWORKS[name]())(X)
    with as_context(Config(float=np.float32)):
        found = NNGP(NETWORKS[name]())(X.astype(np.float32))
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_models_of_gpflow(rng):
    """A GPR passes through a function of this kernel; an SVGP on its points is the same process."""
    X = rng.normal(size=(12, int(np.prod(IMAGE))))
    kernel = NNGP(IMAGES["valid"](), input_shape=IMAGE)
    factor = np.linalg.cholesky(kernel(X) + 1e-10 * np.eye(12))
    Y = factor @ rng.normal(size=(12, 1))
    gpr = gpflow.models.GPR((X, Y), kernel, noise_variance=1e-4)
    np.testing.assert_allclose(gpr.predict_f(X)[0], Y, atol=0.1 * Y.std())
    with tf.GradientTape() as tape:
        loss = gpr.training_loss()
    gradients = tape.gradient(loss, gpr.trainable_variables)
    assert len(gradients) == 6
    assert all(np.abs(gradient) > 0.0 for gradient in gradients)
    svgp = gpflow.models.SVGP(kernel, gpr.likelihood, X.copy(), whiten=False, num_data=12)
    mean, covariance = gpr.predict_f(X, full_cov=True)
    svgp.q_mu.assign(mean)
    svgp.q_sqrt.assign(np.linalg.cholesky(covariance))
    new = rng.normal(size=(3, X.shape[1]))
    for found, expected in zip(svgp.predict_f(new), gpr.predict_f(new), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


@also_tiled(["relu", "same"], ["same"])
def test_inputs_of_unknown_number(name, tile, rng):
    """A compiled function may not know how many rows there will be; there may be none."""
    shape = IMAGE if name in IMAGES else (6,)
    kernel = NNGP(NETWORKS[name](), input_shape=shape)
    rows = tf.TensorSpec([None, int(np.prod(shape))], tf.float64)
    compiled = tf.function(
        lambda X, X2: (kernel(X, X2), kernel(X), kernel(X, full_cov=False)),
        input_signature=[rows, rows],
    )
    X, X2 = (rng.normal(size=(number, rows.shape[1])) for number in (5, 3))
    for found, expected in zip(
        compiled(X, X2), (kernel(X, X2), kernel(X), kernel.K_diag(X)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert [part.shape for part in compiled(X[:0], X2)] == [(0, 3), (0, 0), (0,)]


# --- Gradients ------------------------------------------------------------------------------------


def objective(kernel: NNGP, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
    """A function of all entries, each with a weight of its own."""
    parts = (kernel(X, X2), kernel(X), kernel(X, full_cov=False))
    return tf.add_n([tf.reduce_sum(tf.sin(3.0 * part)) for part in parts])


def slope(function: Callable[[], tf.Tensor], variable: tf.Variable, direction: Array) -> float:
    """The derivative along a direction, by a central difference."""
    start, step, ends = np.array(variable), 1e-5, []
    for sign in (1.0, -1.0):
        variable.assign(start + sign * step * direction)
        ends.append(float(function()))
    variable.assign(start)
    return (ends[0] - ends[1]) / (2.0 * step)


@also_tiled(["relu", "erf", "strides", "overlapping pooling"], ["same", "global"])
def test_gradient(name, tile, rng):
    """In the variances and in the inputs of both sides, against central differences."""
    X, X2 = (tf.Variable(inputs(name, number, rng)) for number in (4, 2))
    kernel = NNGP(NETWORKS[name]())
    function = tf.function(lambda: objective(kernel, X, X2))

    @tf.function
    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = objective(kernel, X, X2)
        return tape.gradient(value, [*kernel.trainable_variables, X, X2])

    variables = [*kernel.trainable_variables, X, X2]
    for variable, gradient in zip(variables, gradients(), strict=True):
        for _ in range(1 if gradient.shape.rank == 0 else 3):
            direction = rng.normal(size=gradient.shape)
            expected = slope(function, variable, direction)
            np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=1e-6, atol=1e-7)


@also_tiled(["relu", "same"], ["same"])
def test_second_derivative(name, tile, rng):
    X, X2 = (tf.Variable(inputs(name, number, rng)) for number in (3, 2))
    kernel = NNGP(NETWORKS[name]())
    variable = kernel.trainable_variables[0]

    def first() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = objective(kernel, X, X2)
        return tf.reduce_sum(tf.cos(tape.gradient(value, X2)))

    with tf.GradientTape() as tape:
        value = first()
    found = tape.gradient(value, variable)
    np.testing.assert_allclose(found, slope(first, variable, np.ones([])), rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "erf", "same", "global"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_is_finite_where_the_angle_is_not_smooth(name, dtype, rng):
    """Equal, opposite, proportional, nearly equal and zero inputs; no biases."""
    with as_context(Config(float=dtype)):
        layers = NETWORKS[name]()
        for layer in layers:
            if isinstance(layer, Dense | Conv2D):
                layer.bias_variance = None
        kernel = NNGP(layers)
        X = inputs(name, 2, rng)
        X = np.concatenate([X, X, -X, 3 * X, (1 + 1e-7) * X, 0 * X, 1e-7 * X, 1e4 * X])
        X = tf.Variable(X.astype(dtype))
        with tf.GradientTape() as tape:
            value = objective(kernel, X, X)
        gradients = tape.gradient(value, [X, *kernel.trainable_variables])
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_gradient_at_equal_inputs_is_the_limit(rng):
    """∂k(x, x')/∂x' at x' = x, where the arc cosine itself has no derivative."""
    x = rng.normal(size=(1, 3))
    kernel = NNGP([Dense(1.7, 0.3), ReLU(), Dense()])

    def gradient(point: Array) -> Array:
        point = tf.constant(point)
        with tf.GradientTape() as tape:
            tape.watch(point)
            value = kernel(x, point)
        return tape.gradient(value, point).numpy()

    beside = gradient(x + 1e-7 * rng.normal(size=x.shape))
    np.testing.assert_allclose(gradient(x), beside, rtol=1e-5)
    # With u = w·x + b, the derivative of E[φ(u) φ(u')] at u' = u is E[φ(u) φ'(u) w] = Cov(u, w)/2.
    np.testing.assert_allclose(gradient(x), 0.5 * 1.7 * x / 3, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["value", "gradient"])
def test_memory_is_bounded(what):
    """The covariances of 400 × 400 pairs of images of 28 × 28 would take 1 GB for each array."""
    program = """
import resource, sys
import numpy as np, tensorflow as tf
from gpflow_gvi.kernels.nngp import NNGP, Conv2D, Flatten, ReLU
kernel = NNGP([Conv2D(3), ReLU(), Conv2D(3), ReLU(), Flatten()], input_shape=(28, 28, 1))
X = tf.constant(np.random.default_rng(0).normal(size=(400, 784)))
kernel(X[:2])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
before = peak()
with tf.GradientTape() as tape:
    value = tf.reduce_sum(kernel(X))
if sys.argv[1] == "gradient":
    tape.gradient(value, kernel.trainable_variables)
print(peak() - before)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, what], capture_output=True, text=True, check=True
    )
    assert float(run.stdout.split()[-1]) < 0.8


# --- Parameters and bad input ---------------------------------------------------------------------


def test_no_bias_no_parameter():
    kernel = NNGP([Dense(1.5), ReLU(), Dense(2.0, 0.3)])
    assert set(gpflow.utilities.parameter_dict(kernel)) == {
        ".layers[0].weight_variance",
        ".layers[2].weight_variance",
        ".layers[2].bias_variance",
    }
    assert kernel.layers[0].bias_variance is None
    copy = gpflow.utilities.deepcopy(kernel)
    copy.layers[0].weight_variance.assign(9.0)
    np.testing.assert_allclose(kernel.layers[0].weight_variance, 1.5)


def test_shared_parameter():
    """A parameter with a prior is kept, and may belong to several layers."""
    shared = gpflow.Parameter(1.5, transform=gpflow.utilities.positive())
    kernel = NNGP([Dense(shared), ReLU(), Dense(shared)])
    assert len(kernel.trainable_variables) == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: NNGP([]), "layers is empty"),
        (lambda: NNGP([Dense]), "must be an instance"),
        (lambda: Dense(-1.0), "weight_variance is -1.0; it must be positive"),
        (lambda: Dense(0.0), "weight_variance is 0.0; it must be positive"),
        (lambda: Dense(1.0, -0.1), "bias_variance is -0.1; it must be zero or positive"),
        (lambda: Dense(np.ones(3)), r"weight_variance has shape \(3,\)"),
        (lambda: Conv2D(0), "kernel_size is 0; it must be a whole number"),
        (lambda: Conv2D((3, 3, 3)), r"kernel_size is \(3, 3, 3\); give one number, or one for"),
        (lambda: Conv2D(3, strides=1.5), "strides is 1.5"),
        (lambda: Conv2D(3, padding="full"), "padding is 'full'; it must be"),
        (lambda: AveragePooling2D(-2), "pool_size is -2"),
        (lambda: NNGP([ReLU()]), r"layers\[0\] \(ReLU\): its inputs must be Gaussian"),
        (lambda: NNGP([Dense(), ReLU(), Erf()]), r"layers\[2\] \(Erf\): its inputs must be Gauss"),
        (
            lambda: NNGP([Conv2D(3), Flatten(), ReLU()]),
            r"layers\[2\] \(ReLU\): its inputs must be Gaussian",
        ),
        (lambda: NNGP([Conv2D(3), ReLU()]), r"layers\[1\] \(ReLU\), the last, gives images"),
        (lambda: NNGP([Conv2D(3), Dense()]), r"layers\[1\] \(Dense\): it takes vectors, but gets"),
        (
            lambda: NNGP([Conv2D(3), Flatten(), Conv2D(3)]),
            r"layers\[2\] \(Conv2D\): it takes images, but gets vectors",
        ),
        (lambda: NNGP([Dense(), Flatten()]), r"layers\[1\] \(Flatten\): it takes images"),
        (
            lambda: NNGP([Dense(), GlobalAveragePooling2D()]),
            r"layers\[1\] \(GlobalAveragePooling2D\): it takes images",
        ),
        (
            lambda: NNGP([Conv2D(7, padding="valid"), Flatten()], input_shape=IMAGE),
            r"layers\[0\] \(Conv2D\): its window of 7 x 7 pixels is larger than its input of 5 x 4",
        ),
        (
            lambda: NNGP([Conv2D(3), Flatten()], input_shape=(28, 28)),
            r"input_shape is \(28, 28\), but the first layer \(Conv2D\) takes \(H, W, C\)",
        ),
        (lambda: NNGP([Dense()], input_shape=IMAGE), r"the first layer \(Dense\) takes \(D,\)"),
        (lambda: NNGP([Dense()], input_shape=0), "input_shape is 0"),
    ],
)
def test_bad_architecture(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


@pytest.mark.parametrize(
    ("layers", "input_shape", "X", "message"),
    [
        ([Conv2D(3), Flatten()], None, np.ones((2, 40)), r"say input_shape=\(H, W, C\)"),
        ([Conv2D(3), Flatten()], IMAGE, np.ones((2, 41)), r"X has shape \(2, 41\), but input_shap"),
        ([Conv2D(3), Flatten()], IMAGE, np.ones((2, 4, 5, 2)), "rows of 40 numbers"),
        ([Conv2D(3), Flatten()], IMAGE, np.ones(IMAGE), r"that of a single input.*X\[None\]"),
        (
            [Conv2D(7, padding="valid"), Flatten()],
            None,
            np.ones((2, *IMAGE)),
            "window of 7 x 7 pixels is larger",
        ),
        ([Dense()], 3, np.ones((2, 4)), r"input_shape is \(3,\)"),
        ([Dense()], None, np.ones(4), r"X has shape \(4,\), which is that of a single input"),
        ([Dense()], None, np.ones((2, 4), np.float32), r"X has dtype float32.*astype\('float64'\)"),
        ([Dense()], None, np.ones((2, 4), np.uint8), "X has dtype uint8"),
    ],
)
def test_bad_inputs(layers, input_shape, X, message):
    kernel = NNGP(layers, input_shape=input_shape)
    for evaluate in (kernel.K, kernel.K_diag):
        with pytest.raises((ValueError, TypeError), match=message):
            evaluate(X)


def test_inputs_of_two_widths_are_refused(rng):
    with pytest.raises(ShapeMismatchError, match="X2"):
        NNGP([Dense()])(rng.normal(size=(2, 3)), rng.normal(size=(2, 4)))


def test_diagonal_of_two_inputs_is_refused():
    with pytest.raises(ValueError, match="X2 was given with full_cov=False"):
        NNGP([Dense()])(np.ones((2, 1)), np.ones((2, 1)), full_cov=False)

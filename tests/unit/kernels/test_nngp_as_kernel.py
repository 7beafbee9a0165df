"""Infinitely wide networks as kernels of GPflow: inputs, models, gradients, memory, bad input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import pytest
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
    ReLU,
)
from tests.tolerances import ITERATIVE, ROUNDING, assert_close, assert_estimates
from tests.unit.kernels.nngp_examples import DENSE, IMAGE, IMAGES, NETWORKS, also_tiled, inputs

Array = np.ndarray


# --- As a kernel ----------------------------------------------------------------------------------


@also_tiled([*NETWORKS], [], slow=["same"])
def test_is_a_covariance(name, tile, rng):
    """Symmetric, positive semi-definite, with the diagonal that K_diag gives."""
    X = inputs(name, 7, rng)
    X = np.concatenate([X, X[:2], -X[:2], 1e-6 * X[:1], 1e3 * X[:1], 0 * X[:1]])
    kernel = NNGP(NETWORKS[name]())
    K = kernel(X).numpy()
    # Inputs are of many sizes, and so are variances.
    variance = np.diag(K)
    scale = np.sqrt(np.outer(variance, variance))
    assert_close(K, K.T, scale=scale)
    assert_close(variance, kernel(X, full_cov=False), scale=variance)
    assert_close(np.diag(kernel(X, X.copy())), variance, scale=variance)
    correlation = np.divide(K, scale, out=np.zeros_like(K), where=scale > 0.0)
    assert np.linalg.eigvalsh(correlation).min() > -ROUNDING.float64


@pytest.mark.parametrize("name", ["flatten first", "same", "global"])
def test_rows_of_numbers_are_images(name, rng):
    X, X2 = inputs(name, 4, rng), inputs(name, 3, rng)
    rows, rows2 = (part.reshape(len(part), -1) for part in (X, X2))
    kernel = NNGP(NETWORKS[name](), input_shape=IMAGE)
    expected = NNGP(NETWORKS[name]())(X, X2)
    for first, second in ((rows, rows2), (X, rows2), (rows, X2)):
        assert_close(kernel(first, second), expected)
    assert_close(kernel(rows), kernel(X))
    assert_close(kernel(rows, full_cov=False), kernel.K_diag(X))


def test_active_dims_and_sums(rng):
    X = rng.normal(size=(5, 4))
    kernel = NNGP(DENSE["relu"](), active_dims=[2, 0])
    assert_close(kernel(X), NNGP(DENSE["relu"]())(X[:, [2, 0]]))
    noise = gpflow.kernels.SquaredExponential(active_dims=[1])
    assert_close((kernel + noise)(X), kernel(X) + noise(X))
    assert_close((kernel * noise)(X), kernel(X) * noise(X))


def test_convolution_of_one_pixel_is_dense_at_each(rng):
    X = inputs("same", 4, rng)
    found = NNGP([Conv2D(1, weight_variance=1.4, bias_variance=0.2), ReLU(), Flatten()])(X)
    dense = NNGP([Dense(1.4, 0.2), ReLU()])
    pixels = X.reshape(len(X), -1, IMAGE[-1])
    expected = np.mean([dense(pixels[:, p]) for p in range(pixels.shape[1])], axis=0)
    assert_close(found, expected)


def test_diagonal_needs_no_gram_matrix(rng):
    X = rng.normal(size=(60_000, 2))  # its Gram matrix would have 29 GB
    assert NNGP(DENSE["relu"]()).K_diag(X).shape == (60_000,)


@also_tiled(["relu", "erf", "same", "pooling"], [], slow=["same"])
def test_float32(name, tile, rng):
    X = inputs(name, 5, rng)
    expected = NNGP(NETWORKS[name]())(X)
    with as_context(Config(float=np.float32)):
        found = NNGP(NETWORKS[name]())(X.astype(np.float32))
    assert found.dtype == tf.float32
    assert_close(found, expected)


def test_models_of_gpflow(rng):
    """A GPR finds a function of this kernel; an SVGP on its points is the same process."""
    X = rng.normal(size=(12, int(np.prod(IMAGE))))
    kernel = NNGP(IMAGES["valid"](), input_shape=IMAGE)
    F = np.linalg.cholesky(kernel(X)) @ rng.normal(size=(12, 1))
    gpr = gpflow.models.GPR((X, F + 0.1 * rng.normal(size=F.shape)), kernel, noise_variance=0.01)
    mean, variance = gpr.predict_f(X)
    assert_estimates(mean, F, np.sqrt(variance))
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
    with as_context(Config(jitter=1e-10)):  # K_ZZ needs none
        of_svgp = svgp.predict_f(new)
    for found, expected in zip(of_svgp, gpr.predict_f(new), strict=True):
        assert_close(found, expected, ITERATIVE)


@also_tiled(["relu"], ["same"])
def test_inputs_of_unknown_number(name, tile, rng):
    """A compiled function may not know how many rows there will be; there may be none."""
    shape = IMAGE if name in IMAGES else (6,)
    kernel = NNGP(NETWORKS[name](), input_shape=shape)
    rows = tf.TensorSpec([None, int(np.prod(shape))], tf.float64)
    compiled = tf.function(
        lambda X, X2: (kernel(X, X2), kernel(X), kernel(X, full_cov=False)),
        input_signature=[rows, rows],
        autograph=False,
    )
    X, X2 = (rng.normal(size=(number, rows.shape[1])) for number in (5, 3))
    for found, expected in zip(
        compiled(X, X2), (kernel(X, X2), kernel(X), kernel.K_diag(X)), strict=True
    ):
        assert_close(found, expected)
    assert [part.shape for part in compiled(X[:0], X2)] == [(0, 3), (0, 0), (0,)]


# --- Gradients ------------------------------------------------------------------------------------


def objective(kernel: NNGP, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
    """A function of all entries, each with a weight of its own."""
    parts = (kernel(X, X2), kernel(X), kernel(X, full_cov=False))
    return tf.add_n([tf.reduce_sum(tf.sin(3.0 * part)) for part in parts])


def slope(
    function: Callable[[], tf.Tensor], variables: Sequence[tf.Variable], directions: Sequence[Array]
) -> float:
    """The derivative along a direction, by a central difference."""
    starts, step, ends = [np.array(variable) for variable in variables], 1e-5, []
    for signed in (step, -step, 0.0):
        for variable, start, direction in zip(variables, starts, directions, strict=True):
            variable.assign(start + signed * direction)
        if signed:
            ends.append(float(function()))
    return (ends[0] - ends[1]) / (2.0 * step)


@also_tiled(["relu", "erf", "overlapping pooling"], [], slow=["global"])
def test_gradient(name, tile, rng):
    """In all variances and in the inputs of both sides, against a central difference."""
    X, X2 = (tf.Variable(inputs(name, number, rng)) for number in (4, 2))
    kernel = NNGP(NETWORKS[name]())
    variables = [*kernel.trainable_variables, X, X2]
    with tf.GradientTape() as tape:
        value = objective(kernel, X, X2)
    gradients = tape.gradient(value, variables)
    directions = [rng.normal(size=gradient.shape) for gradient in gradients]
    found = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    expected = slope(lambda: objective(kernel, X, X2), variables, directions)
    assert_close(found, expected, ITERATIVE)


@also_tiled(["relu"], ["same"])
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
    assert_close(found, slope(first, [variable], [np.ones([])]), ITERATIVE)


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
    assert_close(gradient(x), beside, ITERATIVE)
    # With u = w·x + b, the derivative of E[φ(u) φ(u')] at u' = u is E[φ(u) φ'(u) w] = Cov(u, w)/2.
    assert_close(gradient(x), 0.5 * 1.7 * x / 3)


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
    assert_close(kernel.layers[0].weight_variance, 1.5)


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
        ([Conv2D(3), Flatten()], IMAGE, np.ones(IMAGE), r"Pass \('N', 5, 4, 2\) or rows of 40"),
        (
            [Conv2D(7, padding="valid"), Flatten()],
            None,
            np.ones((2, *IMAGE)),
            "window of 7 x 7 pixels is larger",
        ),
        ([Dense()], 3, np.ones((2, 4)), r"input_shape is \(3,\)"),
        ([Dense()], None, np.ones(4), r"X has shape \(4,\), but the first layer takes vectors"),
        ([Dense()], None, np.ones((2, 3, 4)), r"the first layer takes vectors. Pass.*\[N, D\]"),
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

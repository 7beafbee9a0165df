"""Covariances of infinitely wide networks: against quadrature, wide networks, loops over pixels."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import tensorflow as tf

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
)
from tests.tolerances import assert_close, assert_estimates
from tests.unit.kernels.nngp_examples import DENSE, NETWORKS, also_tiled, inputs

Array = np.ndarray


# --- The definition, written out with loops over pixels -------------------------------------------


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


@also_tiled([*NETWORKS], ["valid strides"], slow=["overlapping pooling", "global"])
def test_agrees_with_the_definition(name, tile, rng):
    X, X2 = inputs(name, 3, rng), inputs(name, 2, rng)
    layers = NETWORKS[name]()
    kernel = NNGP(layers)
    expected = [[definition(layers, x, y) for y in X2] for x in X]
    assert_close(kernel(X, X2), expected)
    expected = [[definition(layers, x, y) for y in X] for x in X]
    assert_close(kernel(X), expected)
    assert_close(kernel(X, full_cov=False), np.diag(expected))


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
    assert_close(found, expected)


def test_one_hidden_layer_of_relu_is_half_the_arc_cosine_kernel(rng):
    X, X2 = rng.normal(size=(7, 3)), rng.normal(size=(4, 3))
    arc_cosine = gpflow.kernels.ArcCosine(1, weight_variances=1.7 / 3, bias_variance=0.3)
    kernel = NNGP([Dense(1.7, 0.3), ReLU(), Dense(2.0)])
    assert_close(kernel(X, X2), arc_cosine(X, X2))
    assert_close(kernel(X, full_cov=False), arc_cosine(X, full_cov=False))


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
    assert np.all(deviation < 0.1 * np.abs(np.diag(expected)).max()), "a check that says nothing"
    # The bias of a finite width, of the order of its inverse, is less than one standard error.
    assert_estimates(np.mean(grams, axis=0), expected, deviation)

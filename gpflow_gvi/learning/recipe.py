"""The default choices of `learn`: the kernel of the regulariser and the network of Q's mean.

They are for data in standard units: columns of mean zero and standard deviation one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow_probability as tfp
from gpflow.config import default_float
from gpflow.kernels import Kernel, SquaredExponential, Sum

from ..kernels.spectral_mixture import AdditiveSpectralMixture

Array = np.ndarray[Any, Any]


def kernels(X: Array, Y: Array) -> list[Kernel]:
    """Return kernels to choose among.

    Each is that of a sum of functions of single features, smooth or quasi-periodic, and, where
    there are several features, of two or three functions of all of them, which start with longer
    and shorter lengthscales. Variances and lengthscales have wide priors.

    :param X: standardised inputs, [N, D].
    :param Y: standardised outputs, [N, J].
    """
    D = X.shape[-1]
    if D == 1:
        high = frequencies(X[:, 0], Y[:, 0], 2)
        low = np.array([0.1, high[0]])
        return [_main_effects(f[:, None], 1.0) for f in (high, low)]
    starts = (
        ((2.0, 1.0), (0.7, 0.5), (0.25, 0.3)),
        ((2.0, 1.0), (0.6, 0.3)),
    )
    return [
        Sum(
            [
                *(_interactions(D, scale, variance) for scale, variance in start),
                _main_effects(np.full((1, D), 0.05), 0.3),
            ]
        )
        for start in starts
    ]


def frequencies(x: Array, y: Array, count: int) -> Array:
    """Return the frequencies of the sinusoids that take most of y away, one after the other.

    They are peaks of the Lomb-Scargle periodogram (Lomb 1976; Scargle 1982) of what a parabola and
    the sinusoids before leave of y.
    """
    from scipy.signal import lombscargle

    width = float(np.ptp(x)) or 1.0
    grid = np.linspace(0.25, min(0.25 * len(x), 100.0), 2000) / width
    basis = np.vander(x, 3)
    found: list[float] = []
    for _ in range(count):
        y = y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
        power = lombscargle(x, y, 2.0 * np.pi * grid)
        found.append(float(grid[np.argmax(power)]))
        angle = 2.0 * np.pi * found[-1] * x
        basis = np.column_stack([np.ones_like(x), np.sin(angle), np.cos(angle)])
    return np.array(found)


def _main_effects(frequency: Array, variance: float) -> AdditiveSpectralMixture:
    variances = np.full(frequency.shape, variance / frequency.size)
    lengthscales = np.ones(frequency.shape)
    kernel = AdditiveSpectralMixture(variances, lengthscales, frequency)
    kernel.variances.prior = _around(variances)
    kernel.lengthscales.prior = _around(lengthscales)
    return kernel


def _interactions(D: int, scale: float, variance: float) -> SquaredExponential:
    lengthscales = np.full(D, scale * np.sqrt(D))
    kernel = SquaredExponential(variance=variance, lengthscales=lengthscales)
    kernel.variance.prior = _around(variance)
    kernel.lengthscales.prior = _around(lengthscales)
    return kernel


def _around(value: Any) -> tfp.distributions.Distribution:
    """Return a log-normal prior that lets a hyper-parameter move by orders of magnitude."""
    location = np.log(np.asarray(value, dtype=default_float()))
    return tfp.distributions.LogNormal(location, np.asarray(2.0, dtype=default_float()))


def network(D: int, J: int, *, units: int = 50, seed: int = 0) -> Any:
    """Return a network of two hidden layers that starts at zero.

    It is added to the mean of a sparse GP, so that Q starts at the posterior of the regulariser and
    learns what that has missed.
    """
    import keras

    dtype = np.dtype(default_float()).name

    def dense(size: int, layer_seed: int) -> Any:
        start = keras.initializers.GlorotUniform(seed=layer_seed)
        return keras.layers.Dense(size, "relu", kernel_initializer=start, dtype=dtype)

    readout = keras.layers.Dense(J, kernel_initializer="zeros", dtype=dtype)
    layers = [keras.Input((D,), dtype=dtype), dense(units, seed), dense(units, seed + 1), readout]
    return keras.Sequential(layers)

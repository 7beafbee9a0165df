"""Frequencies of stationary kernels, for functions drawn as sums of sines and cosines.

By Bochner's theorem k(x, x') = σ² E cos(ωᵀ(x - x')) for random frequencies ω; F of them make random
Fourier features (Rahimi and Recht 2007; with sines and cosines, Sutherland and Schneider 2015).

GPflux has such features as a Keras layer, with frequencies from TensorFlow's global seed for all
columns of X. The frequencies here have a seed of their own and come from a low-discrepancy sequence
(Yang, Sindhwani, Avron and Mahoney 2014), which for few columns is many times as accurate.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import kernels
from gpflow.config import default_float
from gpflow.kernels import Kernel
from scipy.special import ndtri
from scipy.stats import chi2, gamma, qmc

Array = npt.NDArray[Any]

_PRECISIONS: dict[type[Kernel], Callable[[Any, Array], Array]] = {
    kernels.SquaredExponential: lambda _, u: np.ones_like(u),
    kernels.RationalQuadratic: lambda k, u: gamma.ppf(u, k.alpha.numpy()) / k.alpha.numpy(),
    kernels.Exponential: lambda _, u: 0.25 / chi2.ppf(u, 1),
    kernels.Matern12: lambda _, u: 1.0 / chi2.ppf(u, 1),
    kernels.Matern32: lambda _, u: 3.0 / chi2.ppf(u, 3),
    kernels.Matern52: lambda _, u: 5.0 / chi2.ppf(u, 5),
}
"""Quantiles of the τ for which the kernel is σ² E exp(-½ τ r²), a mixture of Gaussians."""


def spectrum(
    kernel: Kernel, input_dim: int, num_frequencies: int, rng: np.random.Generator
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the variance σ² and frequencies with the distribution of ω: [] and [D, F].

    A Gaussian of precision τ/ℓ² has normal frequencies of that variance; a product of kernels has
    sums of independent frequencies.
    """
    if isinstance(kernel, kernels.Product):
        parts = [spectrum(part, input_dim, num_frequencies, rng) for part in kernel.kernels]
        # Their sequences are correlated: shuffle them.
        shuffled = [
            tf.gather(omega, rng.permutation(omega.shape[-1]), axis=-1) for _, omega in parts
        ]
        return functools.reduce(operator.mul, (sigma2 for sigma2, _ in parts)), tf.add_n(shuffled)
    if type(kernel) not in _PRECISIONS:
        names = ", ".join(sorted(kind.__name__ for kind in _PRECISIONS))
        raise TypeError(
            f"kernel is (or has as a factor) a {type(kernel).__name__}, whose frequencies are not "
            f"known; they are for {names}. sampling.deviations.register adds a kernel, and "
            "GaussianProcess.sample draws from any kernel at given inputs."
        )
    active = np.arange(input_dim)[kernel.active_dims]
    points = qmc.Halton(len(active) + 1, seed=rng).random(num_frequencies)
    points = 0.5 + (1.0 - 1e-10) * (points - 0.5)  # quantiles of 0 and 1 are infinite
    roots = np.sqrt(_PRECISIONS[type(kernel)](kernel, points[:, -1:]))
    scaled = ndtri(points[:, :-1]) * roots / kernel.lengthscales.numpy()  # [F, active]
    frequencies = np.zeros((input_dim, num_frequencies))
    frequencies[active] = scaled.T
    return tf.convert_to_tensor(kernel.variance), tf.constant(frequencies, dtype=default_float())

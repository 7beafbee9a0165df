"""Whole functions drawn from a Gaussian process, and its values at many inputs at once.

`draw_functions` draws functions that can be evaluated anywhere, at a cost linear in the number of
inputs: a draw from the prior kernel as a finite sum of features, corrected at the
inducing points or observations by Matheron's rule (Wilson, Borovitskiy, Terenin, Mostowsky and
Deisenroth 2020, "Efficiently sampling functions from Gaussian process posteriors"; 2021, "Pathwise
conditioning of Gaussian processes"). At given inputs the `sample` of a process draws from the exact
joint law.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import kernels
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from scipy.special import ndtri
from scipy.stats import chi2, gamma, qmc

from .._core import checks
from .._core.data import inputs
from .._core.graphs import deepcopy
from .._core.memo import memoised, prepare
from .._core.mode import inference
from ..covariances import KernelisedSVGP, SparsePosterior, Tempered, gram
from ..covariances.conditional import ConditionalCovariance, WeightCovariance
from ..covariances.covariance import SparseCovariance
from ..covariances.svgp import SVGPCovariance
from ..gaussian_process import GaussianProcess
from ..kernels.feature_map import OnFeatures
from ..kernels.finite_features import features

Functions = Callable[[tf.Tensor], tf.Tensor]
"""S functions for each of J outputs: from inputs [N, D] to values [J, N, S]."""


@dataclasses.dataclass(frozen=True)
class Draw:
    """The settings of a draw: numbers of functions, outputs and features, an input, a generator."""

    num_samples: int
    num_outputs: int
    example: tf.Tensor
    """An input, [1, D...]."""
    num_features: int
    rng: np.random.Generator

    @property
    def input_dim(self) -> int:
        """The number D of columns of X."""
        return int(self.example.shape[-1])

    def normal(self, rows: int) -> tf.Tensor:
        """Return independent standard normal numbers, `rows` for each function: [J, rows, S]."""
        shape = (self.num_outputs, rows, self.num_samples)
        return tf.constant(self.rng.standard_normal(shape), dtype=default_float())


class FunctionSamples:
    """Functions drawn from a Gaussian process, as its parameters were when they were drawn.

    The value at an input is the same whatever else is evaluated with it, and it is differentiable
    with respect to the input. Works in a `tf.function`.
    """

    def __init__(self, process: GaussianProcess, draw: Draw) -> None:
        # The coefficients of a draw fit one state of the parameters only: keep that state.
        self._process = deepcopy(process)
        self._input_dim = draw.input_dim
        with memoised() as self._memo, inference():
            prepare(self._process)
        self._known = self._memo.by_key()
        with memoised(given=self._known), inference():
            self._deviations = deviations(self._process.kernel, draw)

    @check_shapes("return: [S, N, J]")
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the values of the functions at the rows of X: [S, N, J]."""
        with memoised(given=self._known), inference():
            at_X = self._process.at(inputs("X", X))
            if at_X.X.shape[-1] != self._input_dim:
                raise ValueError(
                    f"X has {at_X.X.shape[-1]} columns, but the functions were drawn on "
                    f"{self._input_dim} dimensions; pass input_dim to draw_functions."
                )
            values = tf.linalg.matrix_transpose(at_X.mean)[..., None] + self._deviations(at_X.X)
        return tf.transpose(values, [2, 1, 0])


def draw_functions(
    process: GaussianProcess,
    num_samples: int,
    *,
    num_features: int = 2048,
    seed: int | np.random.Generator | None = None,
    input_dim: int | None = None,
) -> FunctionSamples:
    """Draw functions from a process: a callable from X [N, D] to values [S, N, J].

    The law is that of the process but for the features of stationary kernels, which are finitely
    many; the variance of these kernels is exact, and the error of their correlations falls with
    `num_features` (fastest for smooth kernels in few dimensions).

    :param process: the process; any mean function, and a kernel that `deviations` knows.
    :param num_samples: the number S of functions.
    :param num_features: the number of features of each stationary kernel.
    :param seed: the same seed gives the same functions.
    :param input_dim: D, if no inducing points or observations of the process determine it.
    """
    checks.instance("process", process, GaussianProcess)
    checks.count("num_samples", num_samples)
    checks.count("num_features", num_features, least=2)
    example = _example(process, input_dim)
    J = process.at(example).num_outputs
    rng = np.random.default_rng(seed)
    return FunctionSamples(process, Draw(num_samples, J, example, num_features, rng))


def _example(process: GaussianProcess, input_dim: int | None) -> tf.Tensor:
    """Return an input of the process: [1, D...]."""
    if input_dim is not None:
        return tf.zeros([1, input_dim], dtype=default_float())
    for part in process.submodules:
        if getattr(part, "Z", None) is not None:
            return tf.convert_to_tensor(part.Z)[:1]
    raise ValueError(
        "input_dim is None, and the process has neither inducing points nor observations that "
        "determine the number of columns of X: pass input_dim."
    )


@functools.singledispatch
def deviations(kernel: Kernel, draw: Draw) -> Functions:
    """Draw functions from GP(0, kernel). `deviations.register` adds another kernel.

    Kernels φ(x)ᵀ φ(x') of `finite_features.features` are not registered: f(x) = φ(x)ᵀ w.
    """
    phi = features(kernel)
    if phi is None:
        names = ", ".join(sorted({kind.__name__ for kind in deviations.registry} - {"object"}))
        raise TypeError(
            f"kernel is a {type(kernel).__name__}, from which no functions can be drawn; known are "
            f"{names} and kernels of finitely many features. sampling.deviations.register adds a "
            "kernel, and GaussianProcess.sample draws from any kernel at given inputs."
        )
    weights = draw.normal(phi(draw.example).shape[-1])
    return lambda X: tf.matmul(phi(X), weights)


@deviations.register
def _of_each_output(kernel: kernels.SeparateIndependent, draw: Draw) -> Functions:
    one = dataclasses.replace(draw, num_outputs=1)
    parts = [deviations(part, one) for part in kernel.kernels]
    return lambda X: tf.concat([part(X) for part in parts], axis=0)


@deviations.register
def _shared(kernel: kernels.SharedIndependent, draw: Draw) -> Functions:
    return deviations(kernel.kernel, draw)


@deviations.register
def _sum(kernel: kernels.Sum, draw: Draw) -> Functions:
    return _added(*(deviations(part, draw) for part in kernel.kernels))


def _added(*parts: Functions) -> Functions:
    return lambda X: sum(part(X) for part in parts)


# Posterior covariances, by Matheron's rule.


@deviations.register
def _tempered(kernel: Tempered, draw: Draw) -> Functions:
    functions = deviations(kernel.kernel, draw)
    root = tf.reshape(tf.sqrt(kernel.factor), [-1, 1, 1])  # [1 or J, 1, 1]
    return lambda X: root * functions(X)


@deviations.register
def _conditional(kernel: ConditionalCovariance, draw: Draw) -> Functions:
    seen = kernel.observations
    prior = deviations(seen.kernel, draw)
    noise = tf.reshape(tf.sqrt(seen.noise_variance), [-1, 1, 1]) * draw.normal(seen.Z.shape[0])
    return _residual(prior, prior(seen.Z) + noise, seen.cholesky(), seen.whitened)


@deviations.register
def _by_weights(kernel: WeightCovariance, draw: Draw) -> Functions:
    seen = kernel.observations
    weights = draw.normal(seen.cholesky().shape[-1])
    return lambda X: tf.matmul(seen.whitened(X), weights, transpose_a=True)


@deviations.register(SparsePosterior)
@deviations.register(KernelisedSVGP)
@deviations.register(SVGPCovariance)
def _sparse(kernel: SparseCovariance, draw: Draw) -> Functions:
    """g(x) - K_xZ K_ZZ⁻¹ g(Z) for the part b - AᵀA of r, and B(x)ᵀ ε or another draw for the rest.

    Here ε ~ N(0, I): with the factor B = Tᵀ L⁻¹ K_Zx of an SVGP, B(x)ᵀ ε = K_xZ K_ZZ⁻¹ v with
    v = L T ε of covariance K_ZZ Σ K_ZZ, as in the papers.
    """
    replaced, *others = kernel.base_kernels
    inducing_variable = kernel.inducing_variable
    prior = deviations(replaced, draw)
    allowed = "functions are drawn given their values at InducingPoints."
    points = gram.points_of_outputs(inducing_variable, allowed)
    at_Z = gram.each_output([prior(Z) for Z in points])  # [J, M, S]
    M, L = int(inducing_variable.num_inducing), gram.cholesky(replaced, inducing_variable)
    # K_ZZ is factorised with this jitter on its diagonal, as if u had this noise.
    jitter = gram.jitter(inducing_variable, tf.matmul(L, L, transpose_b=True))[:, None, None]
    remainder = _residual(
        prior,
        at_Z + jitter**0.5 * draw.normal(M),
        L,
        functools.partial(gram.whitened, replaced, inducing_variable),
    )
    parts = [remainder, *(deviations(other, draw) for other in others)]
    if isinstance(kernel, SVGPCovariance):
        weights = draw.normal(M)
        parts.append(lambda X: tf.matmul(kernel.factors(X)[1], weights, transpose_a=True))
    return _added(*parts)


def _residual(prior: Functions, seen: tf.Tensor, L: tf.Tensor, whitened: Functions) -> Functions:
    """Return the prior functions minus their regression on Z: g(x) - (L⁻¹ K_Zx)ᵀ L⁻¹ g(Z)."""
    coefficients = tf.linalg.triangular_solve(L, seen)  # [J, M, S]
    return lambda X: prior(X) - tf.matmul(whitened(X), coefficients, transpose_a=True)


# Prior kernels, by their features. By Bochner's theorem k(x, x') = σ² E cos(ωᵀ(x - x')) for random
# frequencies ω; F of them make random Fourier features (Rahimi and Recht 2007; with sines and
# cosines, Sutherland and Schneider 2015). GPflux has them as a Keras layer, with frequencies from
# TensorFlow's global seed for all columns of X. Those here have a seed of their own and come from a
# low-discrepancy sequence (Yang, Sindhwani, Avron and Mahoney 2014), which for few columns is many
# times as accurate.


@deviations.register
def _of_network(kernel: OnFeatures, draw: Draw) -> Functions:
    example = kernel.features(draw.example)
    functions = deviations(kernel.base_kernel, dataclasses.replace(draw, example=example))
    return lambda X: functions(kernel.features(X))


@deviations.register(kernels.Stationary)
@deviations.register(kernels.Product)
def _fourier(kernel: Kernel, draw: Draw) -> Functions:
    variance, frequencies = spectrum(kernel, draw.input_dim, draw.num_features // 2, draw.rng)
    F = frequencies.shape[-1]
    weights = tf.sqrt(variance / F) * draw.normal(2 * F)  # [J, 2F, S]

    def functions(X: tf.Tensor) -> tf.Tensor:
        angles = tf.matmul(X, frequencies)  # [N, F]
        return tf.matmul(tf.concat([tf.cos(angles), tf.sin(angles)], axis=-1), weights)

    return functions


_PRECISIONS: dict[type[Kernel], Callable[[Any, AnyNDArray], AnyNDArray]] = {
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
        return math.prod(sigma2 for sigma2, _ in parts), tf.add_n(shuffled)
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

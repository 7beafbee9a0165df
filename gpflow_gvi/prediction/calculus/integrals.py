"""Integrals ∫ f dπ of a Gaussian process against a measure of inputs: Bayesian quadrature."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import functions as gpflow_functions
from gpflow import kernels
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from typing_extensions import Self

from ..._core import checks
from ..._core.memo import memoised
from ...covariances import FixedSparsePosterior, KernelisedSVGP, SparsePosterior, gram
from ...covariances.conditional import (
    ConditionalCovariance,
    Observations,
    WeightCovariance,
    WeightObservations,
)
from ...covariances.covariance import SparseCovariance
from ...covariances.svgp import SVGPCovariance
from ...gaussian_process import GaussianProcess
from ...kernels.finite_features import features
from ...mean_functions.inducing import ConditionalMean, Inducing
from .linearity import assembled, of_combinations, require_exactly, unknown


class Measure(abc.ABC):
    """A probability law of inputs x of D independent coordinates, given by two vectors.

    So the integral of a product over columns, as a squared exponential kernel is one, is a product
    of integrals on the line.
    """

    names: ClassVar[tuple[str, str]]

    def __init__(self, *rows: TensorType) -> None:
        first, second = (tf.convert_to_tensor(row, dtype=default_float()) for row in rows)
        if first.shape.rank != 1 or first.shape != second.shape:
            raise ValueError(
                f"{self.names[0]} has shape {tuple(first.shape)} and {self.names[1]} has shape "
                f"{tuple(second.shape)}; both must be [D], a number for each column of X."
            )
        self.rows = (first, second)

    def of_columns(self, kernel: Kernel) -> Self:
        """Return the law of the active columns of a kernel."""
        return type(self)(*(kernel.slice(row[None], None)[0][0] for row in self.rows))

    @property
    @abc.abstractmethod
    def mean(self) -> tf.Tensor:
        """E x: [D]."""

    @abc.abstractmethod
    def bump(self, Z: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        """Return E exp(-½ (x_d - z_d)² / ℓ_d²) for the rows of Z: [M, D]."""

    @abc.abstractmethod
    def double_bump(self, lengthscales: tf.Tensor) -> tf.Tensor:
        """Return E exp(-½ (x_d - x'_d)² / ℓ_d²) for independent x and x': [D]."""

    @abc.abstractmethod
    def rule(self, num_nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the nodes [n, D] and the weights [n] of a Gauss rule for each coordinate."""


class GaussianMeasure(Measure):
    """The normal law N(mean, diag(variance)).

    :param mean: [D].
    :param variance: [D], positive.
    """

    names = ("mean", "variance")

    def __init__(self, mean: TensorType, variance: TensorType) -> None:
        super().__init__(mean, variance)
        checks.positive("variance", variance)

    @property
    def mean(self) -> tf.Tensor:
        """E x: [D]."""
        return self.rows[0]

    def bump(self, Z: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        """O'Hagan (1991), "Bayes-Hermite quadrature": the bump is widened by the variance."""
        mean, variance = self.rows
        wider = tf.square(lengthscales) + variance
        return lengthscales / tf.sqrt(wider) * tf.exp(-0.5 * tf.square(Z - mean) / wider)

    def double_bump(self, lengthscales: tf.Tensor) -> tf.Tensor:
        """The bump at zero of x - x', whose variance is doubled."""
        return lengthscales / tf.sqrt(tf.square(lengthscales) + 2.0 * self.rows[1])

    def rule(self, num_nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Gauss-Hermite."""
        nodes, weights = _tensors(np.polynomial.hermite_e.hermegauss(num_nodes))  # type: ignore[no-untyped-call]
        return self.rows[0] + tf.sqrt(self.rows[1]) * nodes[:, None], weights


class UniformMeasure(Measure):
    """The uniform law on a box.

    :param lower: the smallest value of each coordinate, [D].
    :param upper: the largest, [D].
    """

    names = ("lower", "upper")

    def __init__(self, lower: TensorType, upper: TensorType) -> None:
        super().__init__(lower, upper)
        checks.positive("upper - lower", self.rows[1] - self.rows[0])

    @property
    def mean(self) -> tf.Tensor:
        """E x: [D]."""
        return 0.5 * (self.rows[0] + self.rows[1])

    def bump(self, Z: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        """A difference of two normal distribution functions."""
        lower, upper = ((row - Z) / (np.sqrt(2.0) * lengthscales) for row in self.rows)
        area = np.sqrt(np.pi / 2.0) * lengthscales * (tf.math.erf(upper) - tf.math.erf(lower))
        return area / (self.rows[1] - self.rows[0])

    def double_bump(self, lengthscales: tf.Tensor) -> tf.Tensor:
        """∫ (1 - t) exp(-½ w² t²) 2 dt on [0, 1], with w the width of the box in lengthscales."""
        w = (self.rows[1] - self.rows[0]) / lengthscales
        area = np.sqrt(np.pi / 2.0) * w * tf.math.erf(w / np.sqrt(2.0))
        return 2.0 * (area + tf.math.expm1(-0.5 * tf.square(w))) / tf.square(w)

    def rule(self, num_nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Gauss-Legendre."""
        nodes, weights = _tensors(np.polynomial.legendre.leggauss(num_nodes))  # type: ignore[no-untyped-call]
        return self.mean + 0.5 * (self.rows[1] - self.rows[0]) * nodes[:, None], weights


def _tensors(rule: tuple[AnyNDArray, ...]) -> tuple[tf.Tensor, tf.Tensor]:
    nodes, weights = (tf.constant(part, dtype=default_float()) for part in rule)
    return nodes, weights / tf.reduce_sum(weights)


@check_shapes("return[0]: [J]", "return[1]: [J]")
def integrate(process: GaussianProcess, measure: Measure) -> MeanAndVariance:
    """Return mean and variance of ∫ f_j(x) dπ(x) for a measure π of inputs: [J] each.

    Bayesian quadrature (O'Hagan 1991; Briol, Oates, Girolami, Osborne and Sejdinovic 2019).

    :param measure: π, a `GaussianMeasure` or a `UniformMeasure`.
    """
    checks.instance("process", process, GaussianProcess)
    checks.instance("measure", measure, Measure)
    with memoised():
        mean = mean_integral(process.mean_function, measure)
        variance = embedding(process.kernel, measure, None)[:, 0]
    shape = tf.broadcast_dynamic_shape(tf.shape(mean), tf.shape(variance))
    return tf.broadcast_to(mean, shape), tf.broadcast_to(variance, shape)


@functools.singledispatch
def embedding(kernel: Kernel, measure: Measure, Z: tf.Tensor | None) -> tf.Tensor:
    """Return ∫ k(z, x) dπ(x) for the rows of Z, or ∬ k(x', x) dπ(x) dπ(x') if Z is None.

    Outputs come first: [J or 1, M], and [J or 1, 1]. For a kernel φ(x)ᵀ φ(x') of finitely many
    features it is a product of φ and ∫ φ dπ, by quadrature.
    """
    phi = features(kernel)
    if phi is None:
        unknown(kernel, embedding)
    integral = _quadrature(lambda X: tf.transpose(phi(X)), measure, kernel)[None]  # [1, F]
    return tf.matmul(integral, integral if Z is None else phi(Z), transpose_b=True)


@embedding.register
def _(kernel: kernels.SquaredExponential, measure: Measure, Z: Any) -> tf.Tensor:
    require_exactly([kernels.SquaredExponential], kernel, embedding)
    active = measure.of_columns(kernel)
    lengthscales = kernel.lengthscales + tf.zeros_like(active.mean)
    if Z is None:
        bumps = active.double_bump(lengthscales)[None]
    else:
        bumps = active.bump(kernel.slice(Z, None)[0], lengthscales)
    return kernel.variance * tf.reduce_prod(bumps, axis=-1)[None]


_AFFINE = (kernels.Constant, kernels.Linear)
"""Kernels whose integral is their value at the mean of x."""


@embedding.register(kernels.Constant)
@embedding.register(kernels.Linear)
def _(kernel: Kernel, measure: Measure, Z: Any) -> tf.Tensor:
    require_exactly(_AFFINE, kernel, embedding)
    mean = measure.mean[None]
    return kernel(mean if Z is None else Z, mean)[None, :, 0]


@embedding.register
def _(kernel: kernels.Product, measure: Measure, Z: Any) -> tf.Tensor:
    if not kernel.on_separate_dimensions:
        raise TypeError(
            "kernel is a Product whose factors share columns of X, for which embedding has no "
            "formula. Give each factor active_dims of its own, as a list."
        )
    return math.prod(embedding(part, measure, Z) for part in kernel.kernels)


@embedding.register(SVGPCovariance)
@embedding.register(KernelisedSVGP)
@embedding.register(SparsePosterior)
@embedding.register(FixedSparsePosterior)
def _(kernel: SparseCovariance, measure: Measure, Z: Any) -> tf.Tensor:
    replaced, inducing_variable = kernel.base_kernels[0], kernel.inducing_variable
    fixed = isinstance(kernel, FixedSparsePosterior)
    L = kernel.frozen_cholesky if fixed else gram.cholesky(replaced, inducing_variable)
    right = [_whitened(L, replaced, inducing_variable, measure)]
    if isinstance(kernel, SVGPCovariance):
        right.append(tf.matmul(kernel.whitened_sqrt(), right[0], transpose_a=True))
    base = sum(embedding(part, measure, Z) for part in kernel.base_kernels)
    left = None if Z is None else kernel.factors(Z)
    return assembled(kernel, base, right, left)


@embedding.register
def _(kernel: ConditionalCovariance, measure: Measure, Z: Any) -> tf.Tensor:
    seen = kernel.observations
    right = [_whitened_observations(seen, measure)]
    left = None if Z is None else [seen.whitened(Z)]
    return assembled(kernel, embedding(seen.kernel, measure, Z), right, left)


@embedding.register
def _(kernel: WeightCovariance, measure: Measure, Z: Any) -> tf.Tensor:
    seen = kernel.observations
    right = _whitened_observations(seen, measure)
    return tf.reduce_sum(right * (right if Z is None else seen.whitened(Z)), axis=-2)


def _whitened_observations(seen: Observations, measure: Measure) -> tf.Tensor:
    """Return the integral of the factor `seen.whitened`: [J, M, 1], or [J, F, 1] of features."""
    if not isinstance(seen, WeightObservations):
        return _whitened(seen.cholesky(), seen.kernel, seen.Z, measure)
    parts = seen.kernel.kernels if isinstance(seen.kernel, kernels.Sum) else [seen.kernel]
    if all(type(part) in _AFFINE for part in parts):
        return seen.whitened(measure.mean[None])
    return _quadrature(seen.whitened, measure, seen.kernel)[..., None]


def _whitened(L: tf.Tensor, kernel: Kernel, points: Any, measure: Measure) -> tf.Tensor:
    """Return ∫ L⁻¹ K_Zx dπ(x): [J, M, 1]."""
    sets = [points]
    if isinstance(points, InducingVariables):
        allowed = "integrals are known of kernels at InducingPoints."
        sets = gram.points_of_outputs(points, allowed)
    D = measure.mean.shape[0]
    for Z in sets:
        if Z.shape[-1] != D:
            raise ValueError(
                f"measure is of {D} columns, but the process has inputs of {Z.shape[-1]}."
            )
    integral = gram.each_output([embedding(kernel, measure, Z) for Z in sets])  # [J, M]
    return tf.linalg.triangular_solve(L, integral[..., None])


@functools.singledispatch
def mean_integral(mean_function: MeanFunction, measure: Measure) -> tf.Tensor:
    """Return ∫ m(x) dπ(x): [J], by formula where there is one, and otherwise by quadrature."""
    return _quadrature(lambda X: tf.transpose(mean_function(X)), measure, mean_function)


@mean_integral.register(gpflow_functions.Constant)
@mean_integral.register(gpflow_functions.Linear)
def _(mean_function: MeanFunction, measure: Measure) -> tf.Tensor:
    return mean_function(measure.mean[None])[0]


@mean_integral.register
def _(mean_function: gpflow_functions.Additive, measure: Measure) -> tf.Tensor:
    parts = (mean_function.add_1, mean_function.add_2)
    return sum(mean_integral(part, measure) for part in parts)


@mean_integral.register
def _(mean_function: Inducing, measure: Measure) -> tf.Tensor:
    kernel, inducing_variable = mean_function.kernel, mean_function.inducing_variable
    L = gram.cholesky(kernel, inducing_variable)
    A = _whitened(L, kernel, inducing_variable, measure)
    shift = tf.reduce_sum(A * mean_function.whitened_mu(), axis=(-2, -1))  # [J]
    return mean_integral(mean_function.mean_function, measure) + shift


@mean_integral.register
def _(mean_function: ConditionalMean, measure: Measure) -> tf.Tensor:
    seen = mean_function.observations
    A = _whitened_observations(seen, measure)
    shift = tf.reduce_sum(A * seen.whitened_residual(), axis=(-2, -1))  # [J]
    return mean_integral(seen.mean_function, measure) + shift


def _quadrature(
    function: Callable[[tf.Tensor], tf.Tensor], measure: Measure, part: Any
) -> tf.Tensor:
    """Return the integral of function(X) [..., N] by a Gauss rule: [...].

    With 64 nodes for each column it is accurate if the function is smooth on their scale.
    """
    D = measure.mean.shape[0]
    if D > 2:
        raise TypeError(
            f"the integral of a {type(part).__name__} over {D} columns has no formula, and "
            "quadrature is for one or two. Average sampling.draw_functions over inputs drawn "
            "from the measure, or register a formula with mean_integral or embedding."
        )
    nodes, weights = measure.rule(64)
    grid = tf.stack(tf.meshgrid(*tf.unstack(nodes, axis=1), indexing="ij"), axis=-1)
    products = math.prod(tf.meshgrid(*[weights] * D, indexing="ij"))
    return tf.linalg.matvec(function(tf.reshape(grid, [-1, D])), tf.reshape(products, [-1]))


of_combinations(embedding)

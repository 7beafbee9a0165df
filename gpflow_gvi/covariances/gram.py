"""What a mean and a covariance need of an inducing variable: K_ZZ, K_ZX and L⁻¹K_ZX.

All of it comes through GPflow's `Kuu` and `Kuf`, so that every inducing variable for which GPflow
or its user registers these two functions works, with GPflow's jitter on K_ZZ; `DistinctPoints` have
less. Outputs come first: `[J, M, M]` and `[J, M, N]`, with J = 1 where the outputs share a kernel
and an inducing variable.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow import covariances as gpflow_covariances
from gpflow.base import AnyNDArray, TensorType
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel, SharedIndependent
from gpflow.utilities import set_trainable

from .._core import checks, linalg, outputs
from .._core.data import as_floats, finite_rows
from .._core.memo import is_lent, once
from ..errors import short_repr
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel


class DistinctPoints(InducingPoints):
    """Inducing points of a process given observations that may be nearly exact.

    K_ZZ has less jitter than GPflow's, which is noise of the values at Z: a choice of points keeps
    them apart, and where it has not `linalg.cholesky` adds what is needed.
    """


_POINTS = InducingPoints, DistinctPoints


def as_inducing_variable(
    inducing_variable: Any, kind: type[InducingPoints] = InducingPoints
) -> InducingVariables:
    """Return an inducing variable as it is, and an array as fixed `InducingPoints`.

    An array is data and stays where it is; pass `gpflow.inducing_variables.InducingPoints(Z)` for
    points that move in training, the same object to the mean and to the covariance. An array of
    images becomes rows, which is what GPflow's inducing points are.
    """
    if not isinstance(inducing_variable, InducingVariables):
        Z: AnyNDArray = np.asarray(finite_rows("inducing_variable", inducing_variable))
        points = kind(Z.reshape(len(Z), -1) if Z.ndim > 2 else Z)
        set_trainable(points, False)
        return points
    return inducing_variable


def as_start(name: str, value: Any, axes: str) -> Any:
    """Return the start of a parameter; an array or lists as an array of the default float.

    :param axes: those that it must have, as "[M, J]".
    """
    if isinstance(value, np.ndarray | list | tuple):
        value = as_floats(name, checks.array(name, value))
    shape = tuple(getattr(value, "shape", ()))
    if value is not None and len(shape) != axes.count(",") + 1:
        raise ValueError(f"{name} has shape {shape}; it must be {axes}, with J outputs.")
    return value


def require_noise(noise_variance: TensorType, N: int | None, J: int | None) -> None:
    """Raise unless σ² is one number, one for each output, or one for each row, [N, 1] or [N, J].

    :param J: the number of outputs; None if the noise says it.
    """
    checks.positive("noise_variance", noise_variance)
    shape = tuple(tf.convert_to_tensor(noise_variance).shape)
    rows, columns = (1, 1, *shape)[-2:]
    of_outputs = columns in (1, J) or (J is None and columns != N)
    if len(shape) > 2 or rows not in (1, N) or not of_outputs:
        raise ValueError(
            f"noise_variance has shape {shape}; it must be one number, one for each of the outputs "
            f"[J], or one for each of the {N} rows, [N, 1] or [N, J]."
        )


def require_independent_outputs(kernel: Kernel) -> None:
    """Raise for kernels whose outputs are mixtures: Q's outputs are independent here."""
    checks.instance("kernel", kernel, Kernel)
    if outputs.correlated(kernel):
        raise TypeError(
            f"kernel is a {type(kernel).__name__}, whose outputs are correlated. Inducing means "
            "and covariances take a single-output kernel, SharedIndependent or "
            "SeparateIndependent; GaussianProcess(...).condition takes any kernel, and "
            "learn(..., outputs='correlated') learns correlations."
        )


def num_outputs(
    kernel: Kernel, inducing_variable: InducingVariables, wanted: int | None = None
) -> int:
    """Return the number J of outputs of a kernel on an inducing variable."""
    if wanted is not None:
        checks.count("num_latent_gps", wanted)
    separate = isinstance(inducing_variable, FallbackSeparateIndependentInducingVariables)
    sets = len(inducing_variable.inducing_variables) if separate else 1
    return outputs.agreed(
        (outputs.num_outputs(kernel), sets, wanted or 1),
        "kernel, inducing_variable and the other arguments have different numbers of outputs: "
        "{}. Each must be 1 (shared) or the same number J.",
    )


@once
def cholesky(kernel: Kernel, inducing_variable: InducingVariables) -> tf.Tensor:
    """Return the lower factor L of K_ZZ: [J, M, M]."""
    Kzz = _covariance(kernel, inducing_variable)
    Kzz = linalg.add_to_diagonal(Kzz, jitter(inducing_variable, Kzz))
    return linalg.cholesky(Kzz, name="K_ZZ")


def jitter(inducing_variable: InducingVariables, Kzz: TensorType) -> tf.Tensor:
    """Return the amount that is added to the diagonal of K_ZZ: [J]."""
    is_less = isinstance(inducing_variable, DistinctPoints)
    return linalg.least_jitter(Kzz) if is_less else linalg.usual_jitter(Kzz)


@once
def cross_covariance(
    kernel: Kernel, inducing_variable: InducingVariables, X: TensorType
) -> tf.Tensor:
    """Return K_ZX: [J, M, N]."""
    return _covariance(kernel, inducing_variable, X)


@once
def whitened(kernel: Kernel, inducing_variable: InducingVariables, X: TensorType) -> tf.Tensor:
    """Return A = L⁻¹ K_ZX, so that the Nyström part Q_Z of the kernel is AᵀA: [J, M, N]."""
    Kzx = cross_covariance(kernel, inducing_variable, X)
    return tf.linalg.triangular_solve(cholesky(kernel, inducing_variable), Kzx)


@once
def remaining_variance(
    kernel: Kernel, inducing_variable: InducingVariables, X: TensorType
) -> tf.Tensor:
    """Return k(x, x) - Q_Z(x, x), no smaller than its rounding: [N, J]."""
    base = outputs.variance(kernel, X)
    left = base - outputs.squares(whitened(kernel, inducing_variable, X))
    return linalg.floor(left, base, relative=linalg.epsilon(left.dtype))


def has_digits_for_inverse(dtype: tf.DType) -> bool:
    """Return True if K_ZX may be multiplied by K_ZZ⁻¹ or L⁻¹ in a prediction.

    It takes less time than to solve, and 1 / √jitter = 1000 times as much is lost in rounding: a
    part in 10¹² in double precision, but all but three or four digits in single precision.
    """
    return dtype == tf.float64


def by_products(kernel: Kernel, inducing_variable: InducingVariables, X: TensorType) -> bool:
    """Return True if K_ZX may be multiplied in a fit that has no need of L⁻¹ K_ZX otherwise."""
    parts = kernel, inducing_variable, X
    is_better = is_lent(remaining_variance, *parts) and not is_lent(whitened, *parts)
    return is_better and has_digits_for_inverse(X.dtype)


def features(kernel: Kernel, inducing_variable: InducingVariables, X: TensorType) -> tf.Tensor:
    """Return A = L⁻¹ K_ZX as numbers, to which the kernel's parameters are constants: [J, M, N].

    NumPy evaluates kernels that it knows.
    """
    if type(inducing_variable) in _POINTS and tf.executing_eagerly():
        Z = inducing_variable.Z.numpy()
        if has_numpy_kernel(kernel, Z.shape[1:]):
            Kzz = numpy_kernel(kernel, Z).covariance()
            Kzx = numpy_kernel(kernel, Z, np.asarray(X, Z.dtype)).covariance()
            np.einsum("mm->m", Kzz)[:] += jitter(inducing_variable, Kzz).numpy()
            with contextlib.suppress(np.linalg.LinAlgError):  # TensorFlow's way adds more jitter
                L = scipy.linalg.cholesky(Kzz, lower=True, check_finite=False)
                A = scipy.linalg.solve_triangular(L, Kzx, lower=True, check_finite=False)
                return tf.constant(A[None])
    return tf.stop_gradient(whitened(kernel, inducing_variable, X))


def rest(kernel: Kernel, X: TensorType, A: TensorType) -> AnyNDArray:
    """Return k(x, x) - diag AᵀA as numbers, no smaller than its rounding: [N, J].

    :param A: the features at X, [J, M, N].
    """
    X = np.asarray(X)
    if has_numpy_kernel(kernel, X.shape[1:]):
        base = numpy_kernel(kernel, X).variance()[:, None]
    else:
        base = np.asarray(outputs.variance(kernel, X))
    explained = np.sum(np.square(A), axis=-2).T
    return np.maximum(base - explained, np.finfo(base.dtype).eps * base)


def optimal_precision(A: tf.Tensor, noise_variance: TensorType) -> tf.Tensor:
    """Return I + σ⁻² A Aᵀ with A = L⁻¹ K_ZX, the inverse of the best Lᵀ Σ L: [J, M, M].

    Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes",
    eq. 10, in the whitened coordinates in which it is well conditioned.

    :param A: the features of all rows, [J, M, N].
    :param noise_variance: σ², one for all outputs, [J], or one for each row, [N, J].
    """
    inner = information(A, outputs.noise_of_rows(noise_variance))
    return linalg.add_to_diagonal(inner, tf.ones([], dtype=A.dtype))


def information(A: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Return A diag(1/σ²) Aᵀ, which is a sum over rows: [J, M, M].

    :param A: the features of the rows, [J, M, N].
    :param noise: σ², [J, N].
    """
    scaled = A / tf.sqrt(noise)[:, None, :]
    return linalg.outer_product(scaled)


def _covariance(kernel: Kernel, inducing_variable: InducingVariables, *X: TensorType) -> tf.Tensor:
    """Return K_ZZ, [J, M, M], or K_ZX where inputs X are given, [J, M, N]."""
    is_of_gpflow = isinstance(kernel, MultioutputKernel)
    if outputs.num_outputs(kernel) > 1 and not is_of_gpflow:  # `Kuu` and `Kuf` know none of these
        allowed = f"a {type(kernel).__name__} with several outputs takes InducingPoints."
        points = points_of_outputs(inducing_variable, allowed)
        return each_output([outputs.covariance(kernel, Z, *X) for Z in points])
    # The pair for which GPflow has the efficient [J, M, M] covariances.
    shared = isinstance(inducing_variable, FallbackSharedIndependentInducingVariables)
    separate = isinstance(inducing_variable, FallbackSeparateIndependentInducingVariables)
    if is_of_gpflow and not (shared or separate):
        inducing_variable = SharedIndependentInducingVariables(inducing_variable)
    elif shared and not is_of_gpflow:
        inducing_variable = inducing_variable.inducing_variable
    elif separate and not is_of_gpflow:
        kernel = SharedIndependent(kernel, len(inducing_variable.inducing_variables))
    evaluate = gpflow_covariances.Kuf if X else gpflow_covariances.Kuu
    matrix = evaluate(inducing_variable, kernel, *X)
    return matrix[None] if matrix.shape.rank == 2 else matrix


def points_of_outputs(inducing_variable: InducingVariables, allowed: str) -> list[tf.Tensor]:
    """Return the inducing points: one set for all outputs, or one for each.

    :param allowed: what a message says if they are no points.
    """
    parts = getattr(inducing_variable, "inducing_variables", (inducing_variable,))
    if not all(type(part) in _POINTS for part in parts):
        raise TypeError(f"inducing_variable is {short_repr(inducing_variable)}; {allowed}")
    return [tf.convert_to_tensor(part.Z) for part in parts]


def each_output(values: list[tf.Tensor]) -> tf.Tensor:
    """Return output j of the j-th value, or all outputs of the only one: [J, ...].

    :param values: the values of each set of points, outputs first, or one that all of them share.
    """
    if len(values) == 1:
        return values[0]
    return tf.stack([value[0 if value.shape[0] == 1 else j] for j, value in enumerate(values)])

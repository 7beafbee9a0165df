"""A Gaussian process is a mean function and a kernel.

The regulariser P = GP(m_P, k) and the variational Q = GP(m_Q, r) are both of this class; a
divergence compares two of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, Module, TensorType
from gpflow.config import default_float
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from ._core import checks, images, outputs
from ._core.data import Data, inputs
from ._core.memo import memoised
from .covariances.conditional import observe
from .errors import short_repr
from .mean_functions.inducing import ConditionalMean


class GaussianProcess(Module):
    """f ~ GP(m, k) with J outputs.

    A single-output kernel is shared by as many outputs as the mean function has, and a mean
    function of one column by as many as the kernel has.

    Where its parts declare that one input is an image (see `images`), X may be images
    [N, H, W, C] as well as rows [N, H·W·C].

    :param mean_function: m, any GPflow mean function.
    :param kernel: k, any GPflow kernel, of one or of several outputs.
    """

    def __init__(self, mean_function: MeanFunction, kernel: Kernel) -> None:
        super().__init__()
        if not callable(mean_function) or isinstance(mean_function, type):
            raise TypeError(
                f"mean_function is {short_repr(mean_function)}; it must be a "
                "gpflow.functions.MeanFunction."
            )
        checks.instance("kernel", kernel, Kernel)
        self.mean_function = mean_function
        self.kernel = kernel

    @property
    def num_outputs(self) -> int | None:
        """The number J of outputs, on which the mean function and the kernel agree.

        It is None where a mean function has to be evaluated to know its columns, and no part
        declares the shape of an input; `at(X).num_outputs` knows it in any case.
        """
        of_mean = getattr(self.mean_function, "num_outputs", None)
        if of_mean is not None:
            return self._agreed(of_mean)
        shape = images.input_shape(self)
        return None if shape is None else self.at(_example(shape)).num_outputs

    def _agreed(self, of_mean: int) -> int:
        of_kernel = outputs.num_outputs(self.kernel)
        return outputs.agreed(
            (of_mean, of_kernel),
            f"mean_function has {of_mean} outputs and kernel has {of_kernel}; they must be the "
            "same in number, or one of them 1 (shared).",
        )

    def at(self, X: TensorType) -> GaussianVector:
        """Return the process as it is at the rows of X."""
        return GaussianVector(self, X)

    @check_shapes("X: [N, D...]", "return: [N, J]")
    def mean(self, X: TensorType) -> tf.Tensor:
        """Return E f(x): [N, J]."""
        return self.at(X).mean

    @check_shapes("X: [N, D...]", "return: [N, J]")
    def variance(self, X: TensorType) -> tf.Tensor:
        """Return Var f(x): [N, J]."""
        return self.at(X).variance

    @check_shapes(
        "X: [N, D...]",
        "X2: [N2, D...]",
        "return: [J, N, N] if X2 is None",
        "return: [J, N, N2] if X2 is not None",
    )
    def covariance(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return Cov(f_j(X), f_j(X2)) for each output j: [J, N, N2]."""
        at_X = self.at(X)
        if X2 is None:
            return at_X.covariance
        X2 = images.process_rows(_as_floats("X2", X2), self)
        blocks = outputs.covariance(self.kernel, at_X.X, X2)
        return tf.broadcast_to(blocks, [at_X.num_outputs, *tf.unstack(tf.shape(blocks)[1:])])

    def predict(
        self, X: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance in the shapes of GPflow's `predict_f`.

        Leading dimensions of X are a batch; the covariance within each member is returned. The
        axes of an image are no batch (see `images`).
        """
        X = images.process_rows(_as_floats("X", X), self)
        if X.shape.rank is None or X.shape.rank <= 2:
            return self._predict(X, full_cov, full_output_cov)
        if full_cov:
            mean, cov = tf.map_fn(
                # Converting what lies beneath would take longer than running it.
                tf.autograph.experimental.do_not_convert(
                    lambda member: self._predict(member, True, full_output_cov)
                ),
                tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], 0)),
                fn_output_signature=(X.dtype, X.dtype),
            )
            leading = tf.shape(X)[:-2]
        else:
            rows = tf.reshape(X, [-1, X.shape[-1]])
            mean, cov = self._predict(rows, False, full_output_cov)
            leading = tf.shape(X)[:-1]
        return _unflatten(mean, leading), _unflatten(cov, leading)

    def _predict(self, X: tf.Tensor, full_cov: bool, full_output_cov: bool) -> MeanAndVariance:
        at_X = self.at(X)
        if full_cov and full_output_cov:
            J = at_X.num_outputs
            return at_X.mean, outputs.joint_covariance(self.kernel, at_X.X, None, J)
        if full_output_cov:
            return at_X.mean, outputs.joint_variance(self.kernel, at_X.X, at_X.num_outputs)
        return at_X.mean, at_X.covariance if full_cov else at_X.variance

    @check_shapes("X: [N, D...]", "return: [S, N, J]")
    def sample(self, X: TensorType, num_samples: int, *, seed: int | None = None) -> tf.Tensor:
        """Draw from the joint law of the process at the rows of X, in O(N³): [S, N, J].

        The covariance, which is often singular to working precision, enters by its symmetric
        eigendecomposition: nothing is added to it, and eigenvalues that rounded below zero are
        zero.

        :param seed: for `tf.random.stateless_normal`; TensorFlow's global generator if not given.
        """
        at_X = self.at(X)
        N, J = tf.shape(at_X.X)[0], at_X.num_outputs
        correlated = outputs.correlated(self.kernel)
        if correlated:
            joint = outputs.joint_covariance(self.kernel, at_X.X, None, J)  # [N, J, N, J]
            covariance = tf.reshape(joint, [1, N * J, N * J])
        else:
            covariance = at_X.covariance  # [J, N, N]
        eigenvalues, vectors = tf.linalg.eigh(covariance)
        roots = tf.sqrt(tf.maximum(eigenvalues, tf.zeros([], dtype=eigenvalues.dtype)))
        shape = tf.concat([tf.shape(roots), [num_samples]], 0)
        if seed is None:
            noise = tf.random.normal(shape, dtype=roots.dtype)
        else:
            noise = tf.random.stateless_normal(shape, [seed, 0], dtype=roots.dtype)
        values = tf.matmul(vectors, roots[..., None] * noise)  # [J, N, S] or [1, N J, S]
        if correlated:
            values = tf.transpose(tf.reshape(values, [N, J, num_samples]), [2, 0, 1])
        else:
            values = tf.transpose(values, [2, 1, 0])
        return at_X.mean + values

    @tf.autograph.experimental.do_not_convert
    def condition(
        self, Z: TensorType, U: TensorType, noise_variance: TensorType
    ) -> GaussianProcess:
        """Return the exact posterior given that f(Z) + ε = U with ε ~ N(0, σ²).

        Mean m(x) + K_xZ (K_ZZ + σ²I)⁻¹ (U - m(Z)) and covariance
        k(x, x') - K_xZ (K_ZZ + σ²I)⁻¹ K_Zx' (Rasmussen and Williams 2006, chapter 2), computed by
        the weights of the kernel's features where these are fewer than the observations.

        :param Z: the inputs, [M, D].
        :param U: the observations, [M, J].
        :param noise_variance: σ², one for all outputs or [J]; zero for exact values.
        """
        Z, U = Data.of((Z, U), names=("Z", "U"))
        Z = images.as_rows(Z, self)
        checks.positive("noise_variance", noise_variance, or_zero=True)
        J = outputs.num_outputs(self.kernel)
        if J not in (1, U.shape[-1]):
            raise ValueError(f"U has {U.shape[-1]} columns, but the kernel has {J} outputs.")
        outputs.require_columns("U", U, self.mean_function, Z)
        noise_variance = tf.convert_to_tensor(noise_variance, dtype=default_float())
        if tuple(noise_variance.shape) not in ((), (1,), (U.shape[-1],)):
            raise ValueError(
                f"noise_variance has shape {tuple(noise_variance.shape)}; give one number, or one "
                f"for each of the {U.shape[-1]} columns of U."
            )
        observations = observe(self.mean_function, self.kernel, Z, U, noise_variance)
        return GaussianProcess(ConditionalMean(observations), observations.posterior_kernel())


class GaussianVector:
    """A Gaussian process at N inputs: the random vectors f_j(X), computed once, on first use.

    :param process: the process.
    :param X: the inputs, [N, D], or images that the process takes.
    """

    def __init__(self, process: GaussianProcess, X: TensorType) -> None:
        self.process = process
        self.X = images.process_rows(_as_floats("X", X), process)
        images.require_rows(self.X, process)

    @functools.cached_property
    def num_outputs(self) -> int:
        """The number J of outputs, on which the mean function and the kernel agree."""
        return self.process._agreed(_columns(self.process.mean_function, self._raw_mean, self.X))

    @functools.cached_property
    def mean(self) -> tf.Tensor:
        """E f(x): [N, J]."""
        return tf.broadcast_to(self._raw_mean, [tf.shape(self.X)[0], self.num_outputs])

    @functools.cached_property
    def variance(self) -> tf.Tensor:
        """Var f(x): [N, J]."""
        variance = outputs.variance(self.process.kernel, self.X)
        return tf.broadcast_to(variance, [tf.shape(self.X)[0], self.num_outputs])

    @functools.cached_property
    def covariance(self) -> tf.Tensor:
        """Cov(f_j(X), f_j(X)): [J, N, N]."""
        N = tf.shape(self.X)[0]
        blocks = outputs.covariance(self.process.kernel, self.X)
        return tf.broadcast_to(blocks, [self.num_outputs, N, N])

    @functools.cached_property
    def _raw_mean(self) -> tf.Tensor:
        mean = outputs.mean(self.process.mean_function, self.X)
        if mean.shape.rank not in (2, None):
            raise ValueError(
                f"X has shape {tuple(self.X.shape)}, and m(X) has {tuple(mean.shape)}; it must be "
                "[N, J], one row for each row of X. If X are images declare their shape in a part "
                "of the process (input_shape=(H, W, C) to NNGP, keras.Input to a network), or "
                "flatten them: X.reshape(len(X), -1)."
            )
        return mean


def common_outputs(
    variational: GaussianProcess, regulariser: GaussianProcess, input_shape: Sequence[int]
) -> int:
    """Return the number J of outputs of Q; P must have as many, or one that Q's outputs share.

    :param input_shape: the shape of one input.
    """
    X = images.as_rows(_example(input_shape), variational, regulariser)
    with memoised():  # P and Q often have a factor of K_ZZ in common
        J, of_regulariser = variational.at(X).num_outputs, regulariser.at(X).num_outputs
    if of_regulariser not in (1, J):
        raise ValueError(
            f"regulariser has {of_regulariser} outputs and variational has {J}; they must be the "
            "same in number, or the regulariser 1 (shared)."
        )
    return J


def _example(shape: Sequence[int]) -> tf.Tensor:
    """Return an input of this shape: [1, D...]."""
    return tf.zeros([1, *shape], dtype=default_float())


def _as_floats(name: str, X: TensorType) -> tf.Tensor:
    known = isinstance(X, tf.Tensor | np.ndarray)
    if known and (X.ndim or 0) > 1 and X.shape[0] == 0:  # a part of a batch may have no rows
        return tf.cast(X, default_float())
    tensor = inputs(name, X)
    if tensor.dtype != default_float():
        raise TypeError(
            f"{name} has dtype {tensor.dtype.name}, but GPflow's default float is "
            f"{tf.as_dtype(default_float()).name}; convert one to the other."
        )
    return tensor


def _columns(mean_function: MeanFunction, value: tf.Tensor, X: tf.Tensor) -> int:
    """Return the number of columns of m(X), also where its shape in a graph does not show it."""
    if value.shape.rank is not None and value.shape[-1] is not None:
        return int(value.shape[-1])
    with tf.init_scope():
        return int(mean_function(_example(X.shape[1:])).shape[-1])


def _unflatten(value: tf.Tensor, leading: tf.Tensor) -> tf.Tensor:
    return tf.reshape(value, tf.concat([leading, tf.shape(value)[1:]], 0))

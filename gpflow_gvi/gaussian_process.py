"""The noun of the house: a Gaussian process is a mean function and a kernel.

The regulariser P = GP(m_P, k) and the variational Q = GP(m_Q, r) are both of this class; a
divergence compares two of them.
"""

from __future__ import annotations

import functools

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, Module, TensorType
from gpflow.config import default_float
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from . import checks, conditioning, inputs, outputs


class GaussianProcess(Module):
    """f ~ GP(m, k) with J outputs.

    A single-output kernel is shared by as many outputs as the mean function has, and a mean
    function of one column by as many as the kernel has.

    Where its parts say that one input is an image (see `inputs`), X may be images [N, H, W, C] as
    well as rows [N, H·W·C].

    :param mean_function: m, any GPflow mean function.
    :param kernel: k, any GPflow kernel, of one or of several outputs.
    """

    def __init__(self, mean_function: MeanFunction, kernel: Kernel) -> None:
        super().__init__()
        if not callable(mean_function):
            raise TypeError(
                f"mean_function is {mean_function!r}; it must be a gpflow.functions.MeanFunction."
            )
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel is {kernel!r}; it must be a gpflow.kernels.Kernel.")
        self.mean_function = mean_function
        self.kernel = kernel

    def at(self, X: TensorType) -> GaussianVector:
        """Return the process as it is at the rows of X."""
        return GaussianVector(self, X)

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
    def mean(self, X: TensorType) -> tf.Tensor:
        """Return E f(x): [N, J]."""
        return self.at(X).mean

    @check_shapes(
        "X: [N, D...]",
        "return: [N, J]",
    )
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
        X2 = inputs.as_rows(_as_floats("X2", X2), self)
        blocks = outputs.covariance(self.kernel, at_X.X, X2)
        return tf.broadcast_to(blocks, [at_X.num_outputs, *tf.unstack(tf.shape(blocks)[1:])])

    def predict(
        self, X: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance in the shapes of GPflow's `predict_f`.

        Leading dimensions of X are a batch; the covariance within each member is returned. The
        axes of an image are no batch (see `inputs`).
        """
        X = inputs.as_rows(_as_floats("X", X), self)
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
        Z, U = checks.data(Z, U, names=("Z", "U"))
        Z = inputs.as_rows(Z, self)
        checks.positive("noise_variance", noise_variance, or_zero=True)
        J = outputs.num_outputs(self.kernel)
        if J not in (1, U.shape[-1]):
            raise ValueError(f"U has {U.shape[-1]} columns, but the kernel has {J} outputs.")
        noise_variance = tf.convert_to_tensor(noise_variance, dtype=default_float())
        if tuple(noise_variance.shape) not in ((), (1,), (U.shape[-1],)):
            raise ValueError(
                f"noise_variance has shape {tuple(noise_variance.shape)}; give one number, or one "
                f"for each of the {U.shape[-1]} columns of U."
            )
        posterior = conditioning.posterior(self.mean_function, self.kernel, Z, U, noise_variance)
        return GaussianProcess(*posterior)


class GaussianVector:
    """A Gaussian process at N inputs: the random vectors f_j(X), computed when asked for, once.

    :param process: the process.
    :param X: the inputs, [N, D], or images that the process takes.
    """

    def __init__(self, process: GaussianProcess, X: TensorType) -> None:
        self.process = process
        self.X = inputs.as_rows(_as_floats("X", X), process)

    @functools.cached_property
    def num_outputs(self) -> int:
        """The number J of outputs, on which the mean function and the kernel must agree."""
        of_mean = _columns(self.process.mean_function, self._raw_mean, self.X)
        of_kernel = outputs.num_outputs(self.process.kernel)
        if of_mean != of_kernel and 1 not in (of_mean, of_kernel):
            raise ValueError(
                f"mean_function has {of_mean} outputs and kernel has {of_kernel}; they must be the "
                "same in number, or one of them 1 (shared)."
            )
        return int(max(of_mean, of_kernel))

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
        mean = self.process.mean_function(self.X)
        if mean.shape.rank not in (2, None):
            raise ValueError(
                f"X has shape {tuple(self.X.shape)}, and m(X) has {tuple(mean.shape)}; it must be "
                "[N, J], one row for each row of X. If X are images let a part of the process say "
                "so (input_shape=(H, W, C) to NNGP, keras.Input to a network), or flatten them: "
                "X.reshape(len(X), -1)."
            )
        return mean


def _as_floats(name: str, X: TensorType) -> tf.Tensor:
    tensor = tf.convert_to_tensor(X)
    if tensor.dtype != default_float():
        raise TypeError(
            f"{name} has dtype {tensor.dtype.name}, but GPflow's default float is "
            f"{tf.as_dtype(default_float()).name}; convert one to the other."
        )
    return tensor


def _columns(mean_function: MeanFunction, value: tf.Tensor, X: tf.Tensor) -> int:
    """Return the number of columns of m(X), also where a graph has lost sight of it."""
    if value.shape.rank is not None and value.shape[-1] is not None:
        return int(value.shape[-1])
    with tf.init_scope():
        return int(mean_function(tf.zeros([1, *X.shape[1:]], dtype=X.dtype)).shape[-1])


def _unflatten(value: tf.Tensor, leading: tf.Tensor) -> tf.Tensor:
    return tf.reshape(value, tf.concat([leading, tf.shape(value)[1:]], 0))

"""Kullback-Leibler divergences between Gaussian processes, where they are finite."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import read_values
from tensorflow_probability import distributions as tfd

from .._core import checks, linalg
from ..covariances import SVGPCovariance, gram
from ..gaussian_process import GaussianProcess, GaussianVector
from ..mean_functions import Inducing
from .base import Divergence
from .contexts import Context


class InducingKL(Divergence):
    """KL[q(u), p(u)] / N, which is KL[Q, P] / N for the covariances of an inducing distribution.

    With it, the log loss and weight one, the objective is minus the evidence lower bound of
    GPflow's SVGP. Matthews et al. (2016), "On sparse variational methods and the KL divergence
    between stochastic processes". For any other mean or covariance KL[Q, P] is infinite, and this
    raises. It depends on no inputs, and so takes no context.
    """

    bounds_evidence = True

    def __init__(self) -> None:
        super().__init__()

    def check(self, q: GaussianProcess, p: GaussianProcess) -> None:
        """Raise where KL[Q, P] is infinite."""
        require_inducing_distribution(q, p)

    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        return inducing_kl(q.process, p.process, q.num_outputs) / num_data


def inducing_kl(q: GaussianProcess, p: GaussianProcess, num_outputs: int) -> tf.Tensor:
    """Return KL[q(u), p(u)], summed over outputs: [].

    With T Tᵀ the covariance and μ the mean of L⁻¹u under Q, T triangular, it is
    ½ ( ‖T‖² + ‖μ‖² - M ) - Σ_m log |T_mm|.

    :param num_outputs: J of Q, as one law of u may be that of each output.
    """
    require_inducing_distribution(q, p)
    mu = q.mean_function.whitened_mu()  # [J, M, 1]
    root = q.kernel.whitened_sqrt()  # [J, M, M]
    spread = tf.reduce_sum(tf.square(root), (-2, -1))
    shift = tf.reduce_sum(tf.square(mu), (-2, -1))
    M = tf.cast(tf.shape(root)[-1], root.dtype)
    logs = tf.math.log(tf.abs(tf.linalg.diag_part(root)))  # [J, M]
    of_outputs = 0.5 * (spread + shift - M) - tf.reduce_sum(logs, axis=-1)
    return tf.reduce_sum(tf.broadcast_to(of_outputs, [num_outputs]))


def require_inducing_distribution(q: GaussianProcess, p: GaussianProcess) -> None:
    """Raise unless Q is P's conditional law given u, with a law of its own for u."""
    mean, covariance = q.mean_function, q.kernel
    if not (isinstance(mean, Inducing) and isinstance(covariance, SVGPCovariance)):
        raise TypeError(
            "KL[Q, P] is infinite unless Q has the mean mean_functions.Inducing and the covariance "
            "CholeskySVGP or DiagonalSVGP; this Q has "
            f"{type(mean).__name__} and {type(covariance).__name__}. Take GaussianWasserstein, "
            "RegularisedKL or a projected divergence, which are finite for any Q."
        )
    inducing_variable = covariance.inducing_variable
    for same, what in (
        (_same_points(mean.inducing_variable, inducing_variable), "inducing_variable of Q's mean"),
        (_same_kernel(mean.kernel, covariance.kernel, inducing_variable), "kernel of Q's mean"),
        (_same_kernel(p.kernel, covariance.kernel, inducing_variable), "kernel of P"),
    ):
        if not same:
            raise ValueError(
                f"The {what} is not that of Q's covariance, so KL[Q, P] is infinite. Pass the same "
                "object to both."
            )
    if not _same_values(mean.mean_function, p.mean_function):
        raise ValueError(
            "The mean_function of Q's Inducing mean is not that of P, so KL[Q, P] is infinite. "
            "Pass the same object to both."
        )


class RegularisedKL(Divergence):
    """KL between N(m_Q, R + γB·I) and N(m_P, K + γB·I) at the B inputs, divided by B.

    The function-space KL divergence made finite; Quang (2021), "Regularized divergences between
    covariance operators and Gaussian measures on Hilbert spaces".

    :param gamma: γ > 0.
    :param context: where to evaluate it instead of at the inputs that it is given.
    """

    def __init__(self, gamma: float = 1e-2, *, context: Context | None = None) -> None:
        super().__init__(context=context)
        checks.positive_number("gamma", gamma)
        self.gamma = float(gamma)

    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        B = tf.cast(tf.shape(q.X)[0], q.mean.dtype)

        def law(vector: GaussianVector) -> tfd.Distribution:
            """Return that of each output, [J]; J = 1 broadcasts."""
            regularised = linalg.add_to_diagonal(vector.covariance, self.gamma * B)
            root = linalg.cholesky(regularised, name="R or K + γB·I")
            return tfd.MultivariateNormalTriL(tf.linalg.matrix_transpose(vector.mean), root)

        return linalg.not_negative(tf.reduce_sum(tfd.kl_divergence(law(q), law(p))) / B)


def _same_points(first: InducingVariables, second: InducingVariables) -> bool:
    """Return True if two inducing variables are one, or equal and both at rest."""
    moving = first.trainable_variables or second.trainable_variables
    return first is second or (not moving and _same_values(first, second))


def _same_kernel(first: Kernel, second: Kernel, inducing_variable: InducingVariables) -> bool:
    """Return True if two kernels are one, or have equal parameters and values at the points."""
    if first is second:
        return True
    if not _same_values(first, second):
        return False
    with tf.init_scope():
        ours, theirs = (gram.cholesky(k, inducing_variable) for k in (first, second))
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-12)


def _same_values(first: Module, second: Module) -> bool:
    if first is second:
        return True
    with tf.init_scope():
        ours, theirs = read_values(first), read_values(second)
    return (
        type(first) is type(second)
        and ours.keys() == theirs.keys()
        and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    )

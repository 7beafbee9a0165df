"""Learning from more rows without the old ones: Bayes' rule for a sparse posterior.

In whitened coordinates v = L⁻¹u a sparse posterior is N(μ, S). New rows, as Gaussian observations ỹ
with noise variances s² (`sites`), add their information to it:

    S' = (S⁻¹ + A diag(1/s²) Aᵀ)⁻¹,    μ' = μ + S' A (ỹ - m_Q(X)) / s²,    A = L⁻¹ K_ZX

Under Gaussian noise the result is that of all rows at once (Titsias 2009); under another likelihood
the old rows keep their sites. Inducing points are added where the new rows are far from the old
points: given these, new coordinates of v have their prior N(0, I). Bui, Nguyen and Turner (2017),
"Streaming sparse Gaussian process approximations", with fixed hyper-parameters.

Around a network the mean stays that of the network, and rows say where it is to be trusted, by the
curvature of their likelihood in place of 1/s².
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.functions import Additive, MeanFunction
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core import checks, outputs
from .._core.data import Data
from .._core.errors import shown
from .._core.graphs import deepcopy
from ..covariances import CholeskySVGP, SparsePosterior, Tempered, gram
from ..covariances.svgp import SVGPCovariance
from ..gaussian_process import GaussianProcess
from ..likelihoods import is_gaussian
from ..mean_functions import Inducing, NetworkOutputs
from ..models import GVI
from ..regulariser.fit import Regulariser
from ..regulariser.inducing_points import greedy_variance
from ..regulariser.sites import Sites, sites_of
from .around_network.curvature import inverse_curvature

MIN_SHARE = 0.01
"""Rows at which less than this part of P's variance is left, given the points, need no new ones."""


def update(
    model: GVI, regulariser: Regulariser, data: Data, num_inducing: int
) -> tuple[GVI, Regulariser]:
    """Return copies of a model and its regulariser, conditioned on new rows as well.

    Hyper-parameters and the tempering factor stay as they are.

    :param model: with an `Inducing` mean, to which others may be added, and an `SVGPCovariance`,
        which may be tempered.
    :param regulariser: P, conditioned on the old rows.
    :param data: the new rows, in the units of the model.
    :param num_inducing: how many inducing points are added at most.
    """
    checks.count("num_inducing", num_inducing, least=0)
    model, regulariser = deepcopy((model, regulariser))
    covariance = _covariance(model.variational.kernel)
    points = _values(covariance.inducing_variable)
    added = _points(covariance.kernel, points, np.asarray(data.X), num_inducing)
    likelihood = regulariser.likelihood
    Z = InducingPoints(np.concatenate([points, added]))
    model.variational = _conditioned(model.variational, likelihood, Z, data)
    posterior = regulariser.posterior
    if _is_sparse(posterior):
        posterior = _conditioned(posterior, likelihood, Z, data)
    if _is_sparse(model.regulariser):
        model.mean_function, model.kernel = posterior.mean_function, posterior.kernel
    model.num_data = int(model.num_data) + data.num_rows
    regulariser = regulariser._replace(
        posterior=posterior, inducing_points=np.asarray(Z.Z), inducing_outputs=None
    )
    return model, regulariser


def _conditioned(
    process: GaussianProcess, likelihood: Likelihood, Z: InducingPoints, data: Data
) -> GaussianProcess:
    """Return a sparse posterior given new rows, at its points and new ones."""
    if isinstance(process.mean_function, NetworkOutputs):
        return _around(process, likelihood, Z, data.X)
    covariance, mean = _covariance(process.kernel), _inducing(process)
    J = mean.num_outputs
    T = _widened(_for_outputs(covariance.whitened_sqrt(), J), Z)
    count = T.shape[-1] - covariance.num_inducing
    mu = tf.pad(_for_outputs(mean.whitened_mu(), J), [[0, 0], [0, count], [0, 0]])
    widened = CholeskySVGP(covariance.kernel, Z, q_sqrt=_lower(T))
    sites = _sites(GaussianProcess(process.mean_function, widened), likelihood, Z, data)
    precision = tf.linalg.matrix_transpose(1.0 / sites.variance)  # [J, N]
    A = gram.whitened(covariance.kernel, Z, data.X)  # [J, M', N]
    root = _root_given(T, A, precision)
    residual = tf.linalg.matrix_transpose(sites.Y - process.mean_function(data.X)) * precision
    gained = tf.matmul(root, tf.matmul(A, residual[..., None]), transpose_a=True)
    mu += tf.matmul(root, gained)
    q_mu = tf.linalg.matrix_transpose(mu[..., 0])
    inducing = Inducing(covariance.kernel, Z, mean_function=mean.mean_function, q_mu=q_mu)
    mean_function = _replaced(process.mean_function, mean, inducing)
    return GaussianProcess(mean_function, _of_root(process.kernel, Z, root))


def _around(
    process: GaussianProcess, likelihood: Likelihood, Z: InducingPoints, X: tf.Tensor
) -> GaussianProcess:
    """Return a process around a network given new rows."""
    covariance = _covariance(process.kernel)
    T = _widened(covariance.whitened_sqrt(), Z)  # [J, M', M'], where J is 1 for all classes
    precision = 1.0 / inverse_curvature(likelihood, X, process.mean_function.num_outputs)
    A = gram.whitened(covariance.kernel, Z, X)
    root = _root_given(T, A, precision[:, None] * tf.ones_like(X[:, 0]))
    return GaussianProcess(process.mean_function, _of_root(process.kernel, Z, root))


def _widened(T: tf.Tensor, Z: InducingPoints) -> tf.Tensor:
    """Return the root of the covariance of v at its points and new ones: [J, M', M']."""
    J, M = T.shape[:2]
    count = int(Z.Z.shape[0]) - M
    return tf.linalg.LinearOperatorBlockDiag(
        [
            tf.linalg.LinearOperatorFullMatrix(T),
            tf.linalg.LinearOperatorIdentity(count, batch_shape=[J], dtype=T.dtype),
        ]
    ).to_dense()


def _root_given(T: tf.Tensor, A: tf.Tensor, precision: tf.Tensor) -> tf.Tensor:
    """Return a root of S' for S = T Tᵀ and rows with these precisions, [J, N]."""
    B = tf.matmul(T, A, transpose_a=True)
    inner = tf.matmul(B * precision[:, None, :], B, transpose_b=True)
    C = tf.linalg.cholesky(inner + tf.eye(T.shape[-1], dtype=inner.dtype))
    return tf.linalg.matrix_transpose(tf.linalg.triangular_solve(C, tf.linalg.matrix_transpose(T)))


def _of_root(old: Kernel, Z: InducingPoints, root: tf.Tensor) -> Kernel:
    """Return the covariance of this root, tempered as the old one."""
    kernel: Kernel = CholeskySVGP(_covariance(old).kernel, Z, q_sqrt=_lower(root))
    return Tempered(kernel, old.factor) if isinstance(old, Tempered) else kernel


def _sites(
    process: GaussianProcess, likelihood: Likelihood, Z: InducingPoints, data: Data
) -> Sites:
    if is_gaussian(likelihood):
        J = int(data.Y.shape[-1])
        noise = outputs.noise_variance_at(likelihood, data.X, J)
        return Sites(data.Y, noise + tf.zeros_like(data.Y))
    return sites_of(likelihood, process, tf.convert_to_tensor(Z.Z), (data.X, data.Y))


def _points(kernel: Kernel, Z: Any, X: AnyNDArray, count: int) -> AnyNDArray:
    """Return rows of X, not more than `count`, at which the values at Z leave P uncertain."""
    beyond = SparsePosterior(kernel, Z)
    share = np.asarray(beyond.output_variance(X) / outputs.variance(kernel, X)).max(axis=1)
    X = X[share > MIN_SHARE]
    if not count or not len(X):
        return X[:0]
    return greedy_variance(X, min(count, len(X)), kernel=beyond)[0]


def _covariance(kernel: Kernel) -> SVGPCovariance:
    covariance = kernel.kernel if isinstance(kernel, Tempered) else kernel
    if not isinstance(covariance, SVGPCovariance):
        raise TypeError(
            f"the covariance of the model is {shown(covariance)}; update needs one of an inducing "
            "distribution, CholeskySVGP or DiagonalSVGP, as learn makes it. Learn from all rows."
        )
    return covariance


def _terms(mean: MeanFunction) -> list[MeanFunction]:
    return [*_terms(mean.add_1), *_terms(mean.add_2)] if isinstance(mean, Additive) else [mean]


def _inducing(process: GaussianProcess) -> Inducing:
    for term in _terms(process.mean_function):
        if isinstance(term, Inducing):
            return term
    raise TypeError(
        f"the mean of the model is {shown(process.mean_function)}; update needs an Inducing in it, "
        "as learn makes it. Learn from all rows."
    )


def _is_sparse(process: GaussianProcess) -> bool:
    kernel = process.kernel
    mean = process.mean_function
    return isinstance(kernel, SVGPCovariance) and isinstance(mean, Inducing | NetworkOutputs)


def _replaced(whole: MeanFunction, old: MeanFunction, new: MeanFunction) -> MeanFunction:
    if isinstance(whole, Additive):
        return _replaced(whole.add_1, old, new) + _replaced(whole.add_2, old, new)
    return new if whole is old else whole


def _values(Z: Any) -> AnyNDArray:
    if not isinstance(Z, InducingPoints):
        raise TypeError(f"the inducing variable is {shown(Z)}; update needs inducing points.")
    return np.asarray(Z.Z)


def _for_outputs(values: tf.Tensor, J: int) -> tf.Tensor:
    return tf.broadcast_to(values, [J, *values.shape[1:]])


def _lower(root: tf.Tensor) -> tf.Tensor:
    """Return the lower triangular R with the same R Rᵀ, of positive diagonal."""
    R = tf.linalg.matrix_transpose(tf.linalg.qr(tf.linalg.matrix_transpose(root)).r)
    sign = tf.where(tf.linalg.diag_part(R) < 0.0, -tf.ones([], R.dtype), tf.ones([], R.dtype))
    return R * sign[..., None, :]

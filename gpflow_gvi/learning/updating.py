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

import functools
from collections.abc import Callable
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
from .._core.graphs import deepcopy
from ..covariances import CholeskySVGP, SparsePosterior, Tempered, gram
from ..covariances.svgp import SVGPCovariance
from ..errors import short_repr
from ..gaussian_process import GaussianProcess
from ..mean_functions import Inducing, NetworkOutputs
from ..models import GVI
from ..regulariser.fit import Regulariser
from ..regulariser.inducing_points import greedy_variance
from ..regulariser.site_fit import sites_of
from .around_network.correction import inverse_curvature

Change = Callable[[GaussianProcess], GaussianProcess]

MIN_SHARE = 1e-3
"""Rows at which less than this part of P's variance is left, given the points, need no new ones."""


def update(
    model: GVI,
    regulariser: Regulariser,
    data: Data,
    num_inducing: int,
    into: Change = lambda process: process,
    back: Change = lambda process: process,
) -> tuple[GVI, Regulariser]:
    """Return copies of a model and its regulariser, conditioned on new rows as well.

    Hyper-parameters and the tempering factor stay as they are.

    :param model: with an `Inducing` mean, to which others may be added, and an `SVGPCovariance`,
        which may be tempered.
    :param data: the new rows, in the units of the model.
    :param num_inducing: how many inducing points are added at most.
    :param into: what makes of a process of the model one of the rows of data, if they differ.
    :param back: what makes a process of the model of that.
    """
    checks.count("num_inducing", num_inducing, least=0)
    model, regulariser = deepcopy((model, regulariser))
    Q, P = into(model.variational), into(regulariser.posterior)
    is_posterior = _is_sparse(into(model.regulariser))
    covariance = _covariance(Q.kernel)
    points: Any = covariance.inducing_variable
    Z = _with_more(points, covariance.kernel, np.asarray(data.X), num_inducing)
    given = functools.partial(_given, likelihood=regulariser.likelihood, Z=Z, data=data)
    model.variational = back(given(Q))
    posterior = back(given(P)) if _is_sparse(P) else regulariser.posterior
    if is_posterior:
        model.mean_function, model.kernel = posterior.mean_function, posterior.kernel
    model.num_data = int(model.num_data) + data.num_rows
    regulariser = regulariser._replace(
        posterior=posterior, inducing_points=np.asarray(Z.Z), inducing_outputs=None
    )
    return model, regulariser


def _given(
    process: GaussianProcess, likelihood: Likelihood, Z: InducingPoints, data: Data
) -> GaussianProcess:
    """Return a sparse posterior given new rows, at its points and new ones."""
    covariance, mean_function = _covariance(process.kernel), process.mean_function
    A = gram.whitened(covariance.kernel, Z, data.X)  # [J, M', N]
    if isinstance(mean_function, NetworkOutputs):
        noise = inverse_curvature(likelihood)[:, None]  # one row for all classes
        precision = 1.0 / (noise * mean_function.variance_scale(data.X))
        root = _root_given(_widened(covariance.whitened_sqrt(), Z), A, precision)
        return GaussianProcess(mean_function, _of_root(process.kernel, Z, root))
    mean = _inducing(mean_function)
    J = mean.num_outputs
    whitened = covariance.whitened_sqrt(), mean.whitened_mu()
    T, mu = (tf.broadcast_to(part, [J, *part.shape[1:]]) for part in whitened)
    T, mu = _widened(T, Z), tf.pad(mu, [[0, 0], [0, Z.num_inducing - mu.shape[1]], [0, 0]])
    widened = CholeskySVGP(covariance.kernel, Z, q_sqrt=_lower(T))
    Q = GaussianProcess(mean_function, widened)
    sites = sites_of(likelihood, Q, tf.convert_to_tensor(Z.Z), (data.X, data.Y))
    precision = tf.linalg.matrix_transpose(1.0 / sites.variance)  # [J, N]
    root = _root_given(T, A, precision)
    residual = tf.linalg.matrix_transpose(sites.Y - mean_function(data.X)) * precision
    mu += tf.matmul(root, tf.matmul(root, tf.matmul(A, residual[..., None]), transpose_a=True))
    q_mu = tf.linalg.matrix_transpose(mu[..., 0])
    inducing = Inducing(covariance.kernel, Z, mean_function=mean.mean_function, q_mu=q_mu)
    updated = _replaced(mean_function, mean, inducing)
    return GaussianProcess(updated, _of_root(process.kernel, Z, root))


def _widened(T: tf.Tensor, Z: InducingPoints) -> tf.Tensor:
    """Return the root of the covariance of v at its points and new ones: [J, M', M']."""
    old, count = T.shape[-1], int(Z.Z.shape[0])
    more = [0, count - old]
    of_new = tf.cast(np.arange(count) >= old, T.dtype)
    return tf.pad(T, [[0, 0], more, more]) + tf.linalg.diag(of_new)


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


def _with_more(Z: InducingPoints, kernel: Kernel, X: AnyNDArray, count: int) -> InducingPoints:
    """Return Z and rows of X, not more than `count`, at which the values at Z leave P uncertain."""
    beyond = SparsePosterior(kernel, Z)
    share = np.asarray(beyond.output_variance(X) / outputs.variance(kernel, X)).max(axis=1)
    X = X[share > MIN_SHARE]
    count = min(count, len(X))
    added = greedy_variance(X, count, kernel=beyond)[0] if count else X[:0]
    return type(Z)(np.concatenate([np.asarray(Z.Z), added]))


def _covariance(kernel: Kernel) -> SVGPCovariance:
    covariance = kernel.kernel if isinstance(kernel, Tempered) else kernel
    if not isinstance(covariance, SVGPCovariance):
        raise TypeError(
            f"the covariance of the model is {short_repr(covariance)}; update needs one of an "
            "inducing distribution, CholeskySVGP or DiagonalSVGP, as learn makes it. Learn from "
            "all rows."
        )
    return covariance


def _inducing(mean: MeanFunction) -> Inducing:
    """Return the term of a mean function that is given by inducing points."""
    for term in (mean, *mean.submodules):
        if isinstance(term, Inducing):
            return term
    raise TypeError(
        f"the mean of the model is {short_repr(mean)}; update needs an Inducing in it, as learn "
        "makes it. Learn from all rows."
    )


def _is_sparse(process: GaussianProcess) -> bool:
    is_mean = isinstance(process.mean_function, Inducing | NetworkOutputs)
    return is_mean and isinstance(process.kernel, SVGPCovariance)


def _replaced(whole: MeanFunction, old: MeanFunction, new: MeanFunction) -> MeanFunction:
    if isinstance(whole, Additive):
        return _replaced(whole.add_1, old, new) + _replaced(whole.add_2, old, new)
    return new if whole is old else whole


def _lower(root: tf.Tensor) -> tf.Tensor:
    """Return the lower triangular R with the same R Rᵀ, of positive diagonal."""
    R = tf.linalg.matrix_transpose(tf.linalg.qr(tf.linalg.matrix_transpose(root)).r)
    sign = tf.where(tf.linalg.diag_part(R) < 0.0, -tf.ones([], R.dtype), tf.ones([], R.dtype))
    return R * sign[..., None, :]

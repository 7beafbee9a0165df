"""Hyper-parameters of P under any likelihood: sites and hyper-parameters in turn.

The evidence lower bound for given sites (`sites`) is maximised over the hyper-parameters of the
kernel and the likelihood, the sites are updated for these, and so on until the bound gains no more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core import labels, outputs, row_blocks
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.numpy_kernels import numpy_kernel
from ..kernels.numpy_parameters import THEIR_OWN, ValuesById
from ..likelihoods import is_gaussian
from .exact_sites import ExactBound
from .expectations import MAX_ROWS_AT_ONCE
from .lbfgs import LossWithGradients, Minimise
from .site_bound import Bound, Rows
from .site_forms import AtEachRow, Form, Graphs, KernelByNumpy, WithPoints, expected
from .sites import Sites, Step, converged, covariances, first_sites, rows_of, step

MAX_ROUNDS = 20
"""The maximal number of rounds."""

TOLERANCE = 1e-4
"""Rounds end when the bound gains less than this for each row."""

FEW_ROWS = 500
"""Steps with up to this number of rows take NumPy less time than TensorFlow with any points."""

MAX_REST = 1e-8
"""The part of the variance of f that inducing points may leave open where none is left to tell."""


class SiteFit:
    """A fit of the parameters of the bound.

    :param prior: P before it is conditioned; it is fitted in place, as the likelihood is.
    :param num_means: C, the number of means that are added to m_P, with a weight each.
    :param like: a fit of another kernel, whose mean function, likelihood, weights, and graphs that
        are not of a kernel, this one shares.
    """

    def __init__(
        self,
        prior: GaussianProcess,
        likelihood: Likelihood,
        num_means: int = 0,
        *,
        like: SiteFit | None = None,
    ) -> None:
        self.bound: Bound
        roots = tf.Variable(tf.zeros([num_means, 1], default_float()))
        if like is not None:
            prior = GaussianProcess(like.bound.prior.mean_function, prior.kernel)
            likelihood, roots = like.bound.likelihood, like.bound.roots
        self.bound = Bound(prior, likelihood, roots)
        self._graphs: Graphs = Graphs(None if like is None else like._graphs)
        self._kernel = KernelByNumpy(prior.kernel)
        parts = self.bound, self._kernel, self._graphs
        self._with_points, self._at_each_row = WithPoints(*parts), AtEachRow(*parts)

    def start_weights(self, weights: Any) -> None:
        """Let weights start at values, [C, 1], or all at one."""
        roots = tf.sqrt(tf.constant(weights, default_float()))
        self.bound.roots.assign(tf.broadcast_to(roots, self.bound.roots.shape))

    def fit(
        self,
        minimise: Minimise,
        rows: Rows,
        *,
        means: bool,
        max_rounds: int = MAX_ROUNDS,
        sites: Sites | None = None,
    ) -> tuple[float, Sites]:
        """Fit the parameters, and return minus the bound, and the sites.

        :param means: whether the weights of the means are fitted.
        :param sites: the sites to start from.
        """
        variables = self.bound.variables if means else self.bound.variables[:-1]
        sites, bound = self.converged(rows, sites)
        for _ in range(max_rounds):
            minimise(self._loss(rows, sites), variables)
            sites, after = self.converged(rows, sites)
            gain, bound = after - bound, after
            if gain < TOLERANCE * len(rows.X):
                break
        return -bound, sites

    def _loss(self, rows: Rows, sites: Sites) -> LossWithGradients:
        """Return minus the bound for given sites."""
        rows = _tensors(rows)
        value_and_gradients = self._form(rows).value_and_gradients(rows, sites)

        def evaluate(at: ValuesById) -> tuple[Any, list[Any]]:
            bound, gradients = value_and_gradients(at)
            return -bound, [-gradient for gradient in gradients]

        def loss() -> tf.Tensor:
            points = rows.X if rows.Z is None else rows.Z
            return -self._graphs(self.bound.value, rows._replace(Z=points), sites, for_tape=True)

        return LossWithGradients(loss, evaluate, self.bound.variables)

    def value_and_gradients(
        self, rows: Rows, sites: Sites, *, at: ValuesById = THEIR_OWN
    ) -> tuple[Any, Sequence[Any]]:
        """Return the bound for given sites, and its gradients in all variables.

        The bound includes the log density of the parameters under their own priors.
        """
        return self._form(rows).value_and_gradients(_tensors(rows), sites)(at)

    def converged(self, rows: Rows, sites: Sites | None = None) -> tuple[Sites, float]:
        """Return the sites for the parameters as they are, and the bound.

        :param sites: the sites to start from; `first_sites` if not given.
        """
        m, take_step = self._form(rows).steps(_tensors(rows))
        found, bound = converged(take_step, first_sites(m) if sites is None else sites)
        return found, bound + self._log_prior_density()

    def predict(self, rows: Rows, sites: Sites, new: Rows) -> MeanAndVariance:
        """Return mean and variance of f at new rows, whatever their Y is, given sites of others."""
        return self._form(rows).predict(_tensors(rows), sites, _tensors(new))

    def knows(self, X: TensorType) -> bool:
        """Return True if each row may be an inducing point."""
        return self._kernel.knows(X)

    def _form(self, rows: Rows) -> Form:
        return self._at_each_row if rows.Z is None else self._with_points

    def _log_prior_density(self) -> float:
        """Return the log density of all parameters under their priors."""
        bound = self.bound
        if not self._kernel.has_all:
            return float(bound.log_prior((*bound.of_kernel, *bound.others)))
        of_kernel, _ = self._kernel.read().with_priors(bound.of_kernel, [])
        return of_kernel + float(self._graphs(bound.log_prior_of_others))


def _tensors(rows: Rows) -> Rows:
    return Rows(*(part if part is None else tf.convert_to_tensor(part) for part in rows))


def sites_of(
    likelihood: Likelihood, prior: GaussianProcess, Z: TensorType, data: RegressionData
) -> Sites:
    """Return the sites of observations (X, Y), with Y as the likelihood takes it."""
    X, Y = map(tf.convert_to_tensor, data)
    if is_gaussian(likelihood):
        noise = outputs.noise_variance_at(likelihood, X, int(Y.shape[-1]))
        return Sites(Y, noise + tf.zeros_like(Y))
    m = tf.broadcast_to(prior.mean_function(X), [len(X), labels.num_latents(likelihood, Y)])
    take_step = _steps_of(likelihood, prior, Z, (X, Y, m))
    found, _ = converged(take_step, first_sites(m))
    return Sites(*map(tf.convert_to_tensor, found))


def _steps_of(
    likelihood: Likelihood, prior: GaussianProcess, Z: TensorType, data: tuple[tf.Tensor, ...]
) -> Callable[[Sites], Step]:
    """Return the function of sites that takes a step, given X, Y and m_P(X)."""
    X, Y, m = data
    if KernelByNumpy(prior.kernel).knows(X) and _explain_all(Z, X, prior.kernel):
        K = numpy_kernel(prior.kernel, X.numpy()).covariance(lower=True)
        fixed = K, m.numpy()
        expect = expected(likelihood, X, Y)
        return lambda sites: ExactBound(*fixed, sites, expect, keeps=False).step()
    blocks = [
        rows_of(covariances(prior.kernel, Z, X[at]), X[at], Y[at], m[at])
        for at in row_blocks.slices(len(X), MAX_ROWS_AT_ONCE)
    ]
    return functools.partial(step, blocks, likelihood)


def _explain_all(Z: TensorType, X: TensorType, kernel: Kernel) -> bool:
    """Return True if f at inducing points leaves nothing of f at rows open, but for rounding.

    Among all rows there are fewer points, as equal rows are one, and others follow from the rest.
    """
    if len(Z) > len(X) or 2 * len(Z) <= len(X) > FEW_ROWS:  # few points are less work than all rows
        return False
    A = gram.features(kernel, gram.as_inducing_variable(Z, gram.DistinctPoints), X)
    rest, k = gram.rest(kernel, X, A), numpy_kernel(kernel, np.asarray(X)).variance()
    return bool(np.max(rest) <= MAX_REST * np.max(k))

"""Hyper-parameters of P under any likelihood: sites and hyper-parameters in turn.

The evidence lower bound for given sites (`sites`) is maximised over the hyper-parameters of the
kernel and the likelihood, the sites are updated for these, and so on until the bound gains no more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core.graphs import without_gradients
from ..gaussian_process import GaussianProcess
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from ..kernels.numpy_parameters import (
    THEIR_OWN,
    NumpyParameter,
    NumpyParameters,
    ValuesById,
    is_known,
)
from .exact_sites import ExactBound, Expect, given_sites
from .exact_sites import predictions as predictions_of_exact
from .expectations import Expectation, numpy_expectation
from .lbfgs import LossWithGradients, Minimise, assign_by_id
from .site_bound import Bound, Marginals, Rows
from .sites import Covariances, Sites, Step, converged, first_sites, predictions
from .sites import Rows as AtRows

MAX_ROUNDS = 20
"""The maximal number of rounds."""

TOLERANCE = 1e-4
"""Rounds end when the bound gains less than this for each row."""


SHARED = {
    *("rows", "step", "predictions", "gradients_by_covariances", "log_prior_of_others"),
    *("means", "gradients_of_means", "expectation"),
}
"""The graphs that have no kernel in them, and serve those of any structure."""


class SiteFit:
    """A fit of the parameters of the bound, by graphs that are traced once.

    NumPy evaluates covariances where it knows the kernel, so that graphs serve kernels of any
    structure; else they have the kernel in them.

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
        self._graphs: dict[Any, Any] = {}
        roots = tf.Variable(tf.zeros([num_means, 1], default_float()))
        if like is not None:
            prior = GaussianProcess(like.bound.prior.mean_function, prior.kernel)
            likelihood, roots = like.bound.likelihood, like.bound.roots
            self._graphs = like._graphs
        self.bound = Bound(prior, likelihood, roots)
        parameters = prior.kernel.parameters
        self._known = [NumpyParameter(each) for each in parameters if is_known(each)]
        self._num_parameters = len(parameters)
        self._has_numpy = functools.cache(functools.partial(has_numpy_kernel, prior.kernel))

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

        def evaluate(at: ValuesById) -> tuple[Any, list[Any]]:
            bound, gradients = self.value_and_gradients(rows, sites, at=at)
            return -bound, [-gradient for gradient in gradients]

        def loss() -> tf.Tensor:
            points = rows.X if rows.Z is None else rows.Z
            return -self._run(self.bound.value, rows._replace(Z=points), sites, for_tape=True)

        return LossWithGradients(loss, evaluate, self.bound.variables)

    def value_and_gradients(
        self, rows: Rows, sites: Sites, *, at: ValuesById = THEIR_OWN
    ) -> tuple[Any, Sequence[Any]]:
        """Return the bound for given sites, and its gradients in all variables.

        The bound includes the log density of the parameters under their own priors.
        """
        rows, bound = _tensors(rows), self.bound
        if rows.Z is None:
            return self._exactly(rows, sites, at)
        if not self._is_numpy(rows):
            assign_by_id(bound.variables, at)
            return self._run(bound.gradients, rows, sites)
        assign_by_id(bound.variables[len(bound.of_kernel) :], at)
        read = NumpyParameters(self._known, at)
        known = _NumpyCovariances(bound.prior.kernel, rows, read.values)
        value, by_at, by_others = self._run(
            bound.gradients_by_covariances, known.values, rows, sites
        )
        log_prior, by_kernel = read.with_priors(bound.of_kernel, known.gradient(by_at))
        return float(value) + log_prior, [*by_kernel, *by_others]

    def _exactly(self, rows: Rows, sites: Sites, at: ValuesById) -> tuple[Any, Sequence[Any]]:
        """Return what `value_and_gradients` does where each row is an inducing point."""
        bound = self.bound
        assign_by_id(bound.variables[len(bound.of_kernel) :], at)
        read = NumpyParameters(self._known, at)
        covariances = numpy_kernel(bound.prior.kernel, rows.X.numpy(), values=read.values)
        m = self._means(rows)
        found = ExactBound(covariances.covariance(lower=True), m, sites, self._expect(rows))
        by_K, by_m, by_likelihood = found.gradients()
        parts = zip(covariances.parameters, covariances.gradient(by_K, lower=True), strict=True)
        of_kernel, by_kernel = read.with_priors(bound.of_kernel, parts)
        inputs = rows.X, rows.means, tf.constant(by_m)
        of_others, by_others = self._run(bound.gradients_of_means, *inputs)
        by_others = [each.numpy() for each in by_others]
        for i, by in enumerate(reversed(by_likelihood), start=2):  # the weights are the last
            by_others[-i] = by_others[-i] + by
        return found.value + of_kernel + float(of_others), [*by_kernel, *by_others]

    def _expect(self, rows: Rows) -> Expect:
        """Return the function of the expectations of the likelihood at rows."""
        by_numpy = numpy_expectation(self.bound.likelihood)
        if by_numpy is not None:
            return lambda mean, variance: by_numpy(rows.X, mean, variance, rows.Y)

        def expect(mean: AnyNDArray, variance: AnyNDArray) -> Expectation:
            at = Marginals(rows.X, rows.Y, tf.constant(mean), tf.constant(variance))
            value, by_mean, by_variance, by_parameters = self._run(self.bound.expectation, at)
            by_parameters = [each.numpy() for each in by_parameters]
            return Expectation(float(value), by_mean.numpy(), by_variance.numpy(), by_parameters)

        return expect

    def converged(self, rows: Rows, sites: Sites | None = None) -> tuple[Sites, float]:
        """Return the sites for the parameters as they are, and the bound.

        :param sites: the sites to start from; `first_sites` if not given.
        """
        m, take_step = self._steps(_tensors(rows))
        found, bound = converged(take_step, first_sites(m) if sites is None else sites)
        return found, bound + self._log_prior_density()

    def _steps(self, rows: Rows) -> tuple[tf.Tensor, Callable[[Sites], Step]]:
        """Return m_P(X), and the function of sites that takes a step."""
        if rows.Z is not None:
            at_rows = self._at(rows)
            return at_rows.m, functools.partial(self._run, self.bound.step, at_rows)
        K = numpy_kernel(self.bound.prior.kernel, rows.X.numpy()).covariance(lower=True)
        m, expect = self._means(rows), self._expect(rows)
        return tf.constant(m), lambda sites: ExactBound(K, m, sites, expect).step()

    def _means(self, rows: Rows) -> AnyNDArray:
        """Return m_P(X), with the means that are added to it: [N, J]."""
        return np.asarray(self._run(self.bound.means, rows.X, rows.means))

    def _at(self, rows: Rows) -> AtRows:
        """Return rows with what of P the sites need there, for the parameters as they are."""
        rows = _tensors(rows)
        if self._is_numpy(rows):
            at = _NumpyCovariances(self.bound.prior.kernel, rows, THEIR_OWN).values
        else:
            at = self._run(self.bound.covariances, rows)
        return self._run(self.bound.rows, at, rows)

    def _is_numpy(self, rows: Rows) -> bool:
        """Return True if NumPy evaluates the covariances."""
        return self.knows(rows.X)

    def knows(self, X: TensorType) -> bool:
        """Return True if each row may be an inducing point."""
        return X.dtype == np.float64 and self._has_numpy(tuple(X.shape[1:]))

    def _log_prior_density(self) -> float:
        """Return the log density of all parameters under their priors."""
        bound = self.bound
        if len(self._known) < self._num_parameters:
            return float(bound.log_prior((*bound.of_kernel, *bound.others)))
        of_kernel, _ = NumpyParameters(self._known).with_priors(bound.of_kernel, [])
        return of_kernel + float(self._run(bound.log_prior_of_others))

    def predict(self, rows: Rows, sites: Sites, new: Rows) -> MeanAndVariance:
        """Return mean and variance of f at new rows, whatever their Y is, given sites of others."""
        if rows.Z is None:
            kernel, X, X_new = self.bound.prior.kernel, np.asarray(rows.X), np.asarray(new.X)
            given = given_sites(numpy_kernel(kernel, X).covariance(), self._means(rows), sites)
            Kx, k = (
                numpy_kernel(kernel, X, X_new).covariance(),
                numpy_kernel(kernel, X_new).variance(),
            )
            return predictions_of_exact(given, Kx, k, self._means(new))
        return self._run(predictions, self._at(rows), sites, self._at(new))

    def _run(self, function: Callable[..., Any], *arguments: Any, for_tape: bool = False) -> Any:
        """Return the value of a function, by a graph that takes any number of rows.

        :param for_tape: whether a tape of gradients can see the graph.
        """
        name = function.__name__  # those that have a kernel in them are for this one alone
        key = name if name in SHARED else (name, id(self))
        if key not in self._graphs:
            specs = tuple(map(_specs, arguments))
            if for_tape:
                graph = tf.function(function, autograph=False, input_signature=specs)
            else:
                graph = without_gradients(function, *specs)
            self._graphs[key] = graph
        return self._graphs[key](*arguments)


def _tensors(rows: Rows) -> Rows:
    return Rows(*(part if part is None else tf.convert_to_tensor(part) for part in rows))


class _NumpyCovariances:
    """The covariances of one output, or of one that all share, and derivatives in the kernel."""

    def __init__(self, kernel: Kernel, rows: Rows, values: ValuesById) -> None:
        Z, X = map(np.asarray, (rows.Z, rows.X))
        pairs = (Z, None), (Z, X), (X, None)
        self._of: list[Any] = [numpy_kernel(kernel, *pair, values=values) for pair in pairs]
        of_points, of_pairs, at_rows = self._of
        matrices = (each.covariance()[None] for each in (of_points, of_pairs))
        self.values = Covariances(*map(tf.constant, (*matrices, at_rows.variance()[:, None])))

    def gradient(self, by: Covariances) -> Iterator[tuple[Parameter, AnyNDArray]]:
        """Yield the derivatives, to be added up, of a function of the covariances, from those."""
        of_points, of_pairs, at_rows = self._of
        parts = [
            of_points.gradient(by.Kzz.numpy()[0]),
            of_pairs.gradient(by.Kzx.numpy()[0]),
            at_rows.variance_gradient(by.k.numpy()[:, 0]),
        ]
        for part in parts:
            yield from zip(at_rows.parameters, part, strict=True)


def _specs(parts: Any) -> Any:
    """Return the types of named tensors, or of one, with other numbers of rows and of points."""
    if not hasattr(parts, "_asdict"):
        return tf.TensorSpec([None, *parts.shape[1:]], parts.dtype)
    specs = {}
    for name, part in parts._asdict().items():
        is_matrix = name in ("Kzz", "Kzx", "A")  # [J, M, N]; other tensors are [N, ...]
        shape = [part.shape[0], None, None] if is_matrix else [None, *part.shape[1:]]
        specs[name] = tf.TensorSpec(shape, part.dtype)
    return type(parts)(**specs)

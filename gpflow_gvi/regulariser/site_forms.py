"""How the bound is evaluated: with inducing points, or where each row is one.

NumPy evaluates covariances where it knows the kernel, so that graphs serve kernels of any
structure; else they have the kernel in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core.graphs import without_gradients
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from ..kernels.numpy_parameters import (
    THEIR_OWN,
    NumpyParameter,
    NumpyParameters,
    ValuesById,
    is_known,
)
from . import exact_sites
from .exact_sites import ExactBound
from .expectations import Expectation, expected_log_density, numpy_expectation
from .lbfgs import assign_by_id
from .site_bound import SCALE_OF_WEIGHTS, Bound, Rows
from .sites import Covariances, Sites, Step, predictions
from .sites import Rows as AtRows

SHARED = {
    *("rows", "step", "predictions", "gradients_by_covariances", "log_prior_of_others"),
    *("means", "gradients_of_means", "expectation"),
}
"""The graphs that have no kernel in them, and serve those of any structure."""


class Marginals(NamedTuple):
    """Rows, and the marginal distributions of f there."""

    X: TensorType
    """[N, D]."""
    Y: TensorType
    """[N, P]."""
    mean: TensorType
    """[N, J]."""
    variance: TensorType
    """[N, J]."""


class Graphs:
    """The formulas of a bound as graphs of any number of rows, each traced once.

    :param like: those of a bound of another kernel, with the same mean function, likelihood and
        weights, whose graphs that have no kernel in them are taken.
    """

    def __init__(self, like: Graphs | None = None) -> None:
        self._graphs: dict[Any, Any] = {} if like is None else like._graphs

    def __call__(
        self, function: Callable[..., Any], *arguments: Any, for_tape: bool = False
    ) -> Any:
        """Return the value of a function.

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


ValueAndGradients = Callable[[ValuesById], tuple[Any, Sequence[Any]]]
"""From values of variables that are not their own."""


class Form(Protocol):
    """How the bound is evaluated."""

    def steps(self, rows: Rows) -> tuple[tf.Tensor, Callable[[Sites], Step]]:
        """Return m_P(X), [N, J], and the function of sites that takes a step."""

    def value_and_gradients(self, rows: Rows, sites: Sites) -> ValueAndGradients:
        """Return the function of values that has the bound, and its gradients in all variables."""

    def predict(self, rows: Rows, sites: Sites, new: Rows) -> MeanAndVariance:
        """Return mean and variance of f at new rows, given sites of others."""


class KernelByNumpy:
    """The parameters of a kernel, as NumPy reads them."""

    def __init__(self, kernel: Kernel) -> None:
        self._known = [NumpyParameter(each) for each in kernel.parameters if is_known(each)]
        self.has_all = len(self._known) == len(kernel.parameters)
        self._is_known = functools.cache(functools.partial(has_numpy_kernel, kernel))

    def knows(self, X: TensorType) -> bool:
        """Return True if NumPy evaluates the covariances of rows."""
        return bool(X.dtype == np.float64 and self._is_known(tuple(X.shape[1:])))

    def read(self, at: ValuesById = THEIR_OWN) -> NumpyParameters:
        """Return the parameters, at other values if some are given."""
        return NumpyParameters(self._known, at)


class WithPoints:
    """The bound with inducing points."""

    def __init__(self, bound: Bound, kernel: KernelByNumpy, graphs: Graphs) -> None:
        self._bound, self._kernel, self._graphs = bound, kernel, graphs

    def steps(self, rows: Rows) -> tuple[tf.Tensor, Callable[[Sites], Step]]:
        """Return m_P(X), and steps by a graph."""
        at_rows = self._at(rows)
        return at_rows.m, functools.partial(self._graphs, self._bound.step, at_rows)

    def value_and_gradients(self, rows: Rows, sites: Sites) -> ValueAndGradients:
        """Return the bound and its gradients by a tape, up to the kernel if NumPy knows it."""
        bound = self._bound

        def by_graph(at: ValuesById) -> tuple[Any, Sequence[Any]]:
            assign_by_id(bound.variables, at)
            return self._graphs(bound.gradients, rows, sites)

        def by_covariances(at: ValuesById) -> tuple[Any, Sequence[Any]]:
            assign_by_id(bound.beside_kernel, at)
            read = self._kernel.read(at)
            known = _NumpyCovariances(bound.prior.kernel, rows, read.values)
            value, by_at, by_others = self._graphs(
                bound.gradients_by_covariances, known.values, rows, sites
            )
            log_prior, by_kernel = read.with_priors(bound.of_kernel, known.gradient(by_at))
            return float(value) + log_prior, [*by_kernel, *by_others]

        return by_covariances if self._kernel.knows(rows.X) else by_graph

    def predict(self, rows: Rows, sites: Sites, new: Rows) -> MeanAndVariance:
        """Return mean and variance of f, by what f(Z) explains of it."""
        return self._graphs(predictions, self._at(rows), sites, self._at(new))

    def _at(self, rows: Rows) -> AtRows:
        """Return rows with what of P the sites need there, for the parameters as they are."""
        if self._kernel.knows(rows.X):
            at = _NumpyCovariances(self._bound.prior.kernel, rows, THEIR_OWN).values
        else:
            at = self._graphs(self._bound.covariances, rows)
        return self._graphs(self._bound.rows, at, rows)


class AtEachRow:
    """The bound where each row is an inducing point, and NumPy knows the kernel."""

    def __init__(self, bound: Bound, kernel: KernelByNumpy, graphs: Graphs) -> None:
        self._bound, self._kernel, self._graphs = bound, kernel, graphs

    def steps(self, rows: Rows) -> tuple[tf.Tensor, Callable[[Sites], Step]]:
        """Return m_P(X), and steps by NumPy."""
        K = numpy_kernel(self._bound.prior.kernel, rows.X.numpy()).covariance(lower=True)
        m, expect = self._means(rows), self._expect(rows)
        return tf.constant(m), lambda sites: ExactBound(K, m, sites, expect).step()

    def value_and_gradients(self, rows: Rows, sites: Sites) -> ValueAndGradients:
        """Return the bound and its gradients in closed form, but for those of m_P."""
        bound, expect, X = self._bound, self._expect(rows), rows.X.numpy()
        means = _Means(bound, rows, self._graphs)

        def evaluate(at: ValuesById) -> tuple[Any, Sequence[Any]]:
            if bound.others:  # which graphs of m_P and the likelihood read
                assign_by_id(bound.beside_kernel, at)
            read = self._kernel.read(at)
            covariances = numpy_kernel(bound.prior.kernel, X, values=read.values)
            found = ExactBound(covariances.covariance(lower=True), means.at(at), sites, expect)
            by_K, by_m, by_likelihood = found.gradients()
            parts = zip(covariances.parameters, covariances.gradient(by_K, lower=True), strict=True)
            of_kernel, by_kernel = read.with_priors(bound.of_kernel, parts)
            of_others, by_others = means.gradients(at, by_m)
            for i, by in enumerate(reversed(by_likelihood), start=2):  # the weights are the last
                by_others[-i] = by_others[-i] + by
            return found.value + of_kernel + of_others, [*by_kernel, *by_others]

        return evaluate

    def predict(self, rows: Rows, sites: Sites, new: Rows) -> MeanAndVariance:
        """Return mean and variance of f, by the inverse of K + S."""
        kernel, X, X_new = self._bound.prior.kernel, rows.X.numpy(), new.X.numpy()
        K, Kx = (numpy_kernel(kernel, X, other).covariance() for other in (None, X_new))
        given = exact_sites.given_sites(K, self._means(rows), sites)
        k = numpy_kernel(kernel, X_new).variance()
        return exact_sites.predictions(given, Kx, k, self._means(new))

    def _means(self, rows: Rows) -> AnyNDArray:
        """Return m_P(X), with the means that are added to it: [N, J]."""
        return np.asarray(self._graphs(self._bound.means, rows.X, rows.means))

    def _expect(self, rows: Rows) -> exact_sites.Expect:
        """Return the function of the expectations of the likelihood at rows."""
        return expected(self._bound.likelihood, rows.X, rows.Y, self._graphs)


def expected(
    likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor, run: Callable[..., Any] | None = None
) -> exact_sites.Expect:
    """Return the function of means and variances of f at rows that `ExactBound` needs.

    :param run: evaluates a function of arguments by a graph; without one there is none.
    """
    by_numpy = numpy_expectation(likelihood)
    if by_numpy is not None:
        return lambda mean, variance: by_numpy(X, mean, variance, Y)

    def expectation(at: Marginals) -> tuple[tf.Tensor, ...]:
        parameters = likelihood.trainable_parameters
        variables = [each.unconstrained_variable for each in parameters]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([at.mean, at.variance, *variables])
            of_rows = expected_log_density(likelihood, at.X, at.mean, at.variance, at.Y)
            value = tf.reduce_sum(of_rows)
        sources = (at.mean, at.variance, variables)
        return value, *tape.gradient(value, sources, unconnected_gradients="zero")

    def expect(mean: AnyNDArray, variance: AnyNDArray) -> Expectation:
        at = Marginals(X, Y, tf.constant(mean), tf.constant(variance))
        found = expectation(at) if run is None else run(expectation, at)
        value, by_mean, by_variance, by_parameters = found
        by_parameters = [each.numpy() for each in by_parameters]
        return Expectation(float(value), by_mean.numpy(), by_variance.numpy(), by_parameters)

    return expect


class _Means:
    """m_P(X) = m(X) + Σ_c w_c F_c at rows, and derivatives in the weights and parameters of m.

    Where m has no parameters, and the likelihood none, those in the roots of weights are

        2√w_c (Σ_nj F_ncj ∂/∂m_nj - w_c/s²),

    with s² the variance of their prior.
    """

    def __init__(self, bound: Bound, rows: Rows, graphs: Graphs) -> None:
        self._bound, self._rows, self._graphs = bound, rows, graphs
        self._roots, self._added = bound.roots.numpy(), np.asarray(rows.means)
        if not bound.others:
            self._own = np.asarray(bound.prior.mean_function(rows.X))

    def at(self, values: ValuesById) -> AnyNDArray:
        """Return m_P(X), by its variables where m or the likelihood has parameters: [N, J]."""
        if self._bound.others:
            return np.asarray(self._graphs(self._bound.means, self._rows.X, self._rows.means))
        weights = np.square(values.get(id(self._bound.roots), self._roots))
        return self._own + np.sum(weights * self._added, axis=1)

    def gradients(self, values: ValuesById, by_m: AnyNDArray) -> tuple[float, list[AnyNDArray]]:
        """Return the log prior density of all parameters but the kernel's, and the derivatives.

        :param by_m: those of the bound in m_P(X), [N, J].
        """
        if self._bound.others:
            inputs = self._rows.X, self._rows.means, tf.constant(by_m)
            log_prior, gradients = self._graphs(self._bound.gradients_of_means, *inputs)
            return float(log_prior), [each.numpy() for each in gradients]
        roots = values.get(id(self._bound.roots), self._roots)
        scaled = np.square(roots) / SCALE_OF_WEIGHTS
        by_weights = np.sum(self._added * by_m[:, None], axis=(0, 2))[:, None]
        by_weights -= scaled / SCALE_OF_WEIGHTS
        return -0.5 * float(np.sum(np.square(scaled))), [2.0 * roots * by_weights]


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

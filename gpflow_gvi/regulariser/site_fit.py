"""Hyper-parameters of P under any likelihood: sites and hyper-parameters in turn.

The evidence lower bound for given sites (`sites`) is maximised over the hyper-parameters of the
kernel and the likelihood, the sites are updated for these, and so on until the bound gains no more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
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
from .lbfgs import LossWithGradients, Minimise, assign_by_id, by_tape
from .sites import (
    Covariances,
    Sites,
    Step,
    converged,
    covariances,
    first_sites,
    predictions,
    rows_of,
    step,
)
from .sites import Rows as AtRows

MAX_ROUNDS = 20
"""The maximal number of rounds."""

SCALE_OF_WEIGHTS = 2.0
"""The standard deviation of the prior of weights, before it is cut off at zero."""

TOLERANCE = 1e-4
"""Rounds end when the bound gains less than this for each row."""


SHARED = {"rows", "step", "predictions", "gradients_by_covariances", "log_prior_of_others"}
"""The graphs that take covariances, and serve kernels of any structure."""


class Rows(NamedTuple):
    """The rows that the bound is of."""

    X: TensorType
    """[N, D]."""
    Y: TensorType
    """Observations, as the likelihood takes them: [N, P]."""
    means: TensorType
    """F, what is added to m_P, with weights, at the rows: [N, C, J]."""
    Z: TensorType
    """Inducing points: [M, D]."""


class Bound:
    """The bound as a function of its parameters, by formulas that graphs are traced from.

    :param roots: the square roots of the weights of means, [C, 1].
    """

    def __init__(self, prior: GaussianProcess, likelihood: Likelihood, roots: tf.Variable) -> None:
        self.prior = prior
        self.likelihood = likelihood
        self.roots = roots
        self.of_kernel: Sequence[Parameter] = prior.kernel.trainable_parameters
        self.others: Sequence[Parameter] = [
            *prior.mean_function.trainable_parameters,
            *likelihood.trainable_parameters,
        ]
        self.variables: list[tf.Variable] = [
            *(each.unconstrained_variable for each in (*self.of_kernel, *self.others)),
            roots,
        ]

    @property
    def weights(self) -> tf.Tensor:
        """The weights of the means, [C, 1]: squares, so that none is below zero.

        The more observations of a fold are above average, the lower are cross-fitted predictions of
        them, and a weight below zero would make use of that. Their prior is N(0, 2²), cut off at
        zero: where predictors tell all classes of the rows apart, the bound grows with the weights.
        """
        return tf.square(self.roots)

    def covariances(self, rows: Rows) -> Covariances:
        """Return the covariances of points and rows."""
        return covariances(self.prior.kernel, rows.Z, rows.X)

    def rows(self, at: Covariances, rows: Rows) -> AtRows:
        """Return rows with what of P the sites need there."""
        added = tf.reduce_sum(self.weights * rows.means, axis=1)
        return rows_of(at, rows.X, rows.Y, self.prior.mean_function(rows.X) + added)

    def step(self, at_rows: AtRows, sites: Sites) -> Step:
        """Return the bound without priors of parameters, and an update of the sites."""
        return step([at_rows], self.likelihood, sites)

    def log_prior(self, parameters: Sequence[Parameter]) -> tf.Tensor:
        """Return the log prior density of parameters and, up to a constant, of the weights."""
        of_weights = -0.5 * tf.reduce_sum(tf.square(self.weights / SCALE_OF_WEIGHTS))
        return of_weights + sum(each.log_prior_density() for each in parameters)

    def log_prior_of_others(self) -> tf.Tensor:
        """Return that of all parameters but the kernel's."""
        return self.log_prior(self.others)

    def value(self, rows: Rows, sites: Sites) -> tf.Tensor:
        """Return the bound, with the log prior density of parameters and of the weights."""
        step = self.step(self.rows(self.covariances(rows), rows), sites)
        return step.bound + self.log_prior((*self.of_kernel, *self.others))

    def gradients(self, rows: Rows, sites: Sites) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the bound, and its gradients in all variables."""
        return by_tape(lambda: self.value(rows, sites), self.variables)

    def gradients_by_covariances(
        self, at: Covariances, rows: Rows, sites: Sites
    ) -> tuple[tf.Tensor, Covariances, list[tf.Tensor]]:
        """Return the bound, its gradients in covariances, and those in the other variables."""
        others = self.variables[len(self.of_kernel) :]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*at, *others])
            bound = self.step(self.rows(at, rows), sites).bound + self.log_prior_of_others()
        return bound, *tape.gradient(bound, (at, others), unconnected_gradients="zero")


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
            return -self._run(self.bound.value, rows, sites, for_tape=True)

        return LossWithGradients(loss, evaluate, self.bound.variables)

    def value_and_gradients(
        self, rows: Rows, sites: Sites, *, at: ValuesById = THEIR_OWN
    ) -> tuple[Any, Sequence[Any]]:
        """Return the bound for given sites, and its gradients in all variables.

        The bound includes the log density of the parameters under their own priors.
        """
        rows, bound = _tensors(rows), self.bound
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

    def converged(self, rows: Rows, sites: Sites | None = None) -> tuple[Sites, float]:
        """Return the sites for the parameters as they are, and the bound.

        :param sites: the sites to start from; `first_sites` if not given.
        """
        at_rows = self._at(rows)
        sites = first_sites(at_rows.m) if sites is None else sites
        found, bound = converged(functools.partial(self._run, self.bound.step, at_rows), sites)
        return found, bound + self._log_prior_density()

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
        return rows.X.dtype == tf.float64 and self._has_numpy(tuple(rows.X.shape[1:]))

    def _log_prior_density(self) -> float:
        """Return the log density of all parameters under their priors."""
        bound = self.bound
        if len(self._known) < self._num_parameters:
            return float(bound.log_prior((*bound.of_kernel, *bound.others)))
        of_kernel, _ = NumpyParameters(self._known).with_priors(bound.of_kernel, [])
        return of_kernel + float(self._run(bound.log_prior_of_others))

    def predict(self, rows: Rows, sites: Sites, new: Rows) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance of f at new rows, whatever their Y is, given sites of others."""
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
    return Rows(*map(tf.convert_to_tensor, rows))


class _NumpyCovariances:
    """The covariances of one output, or of one that all share, and derivatives in the kernel."""

    def __init__(self, kernel: Kernel, rows: Rows, values: ValuesById) -> None:
        Z, X = (part.numpy() for part in (rows.Z, rows.X))
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
    """Return the types of named tensors with other numbers of rows and of inducing points."""
    specs = {}
    for name, part in parts._asdict().items():
        is_matrix = name in ("Kzz", "Kzx", "A")  # [J, M, N]; other tensors are [N, ...]
        shape = [part.shape[0], None, None] if is_matrix else [None, *part.shape[1:]]
        specs[name] = tf.TensorSpec(shape, part.dtype)
    return type(parts)(**specs)

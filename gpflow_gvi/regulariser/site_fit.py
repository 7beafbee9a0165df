"""Hyper-parameters of P under any likelihood: sites and hyper-parameters in turn.

The evidence lower bound for given sites (`sites`) is maximised over the hyper-parameters of the
kernel and the likelihood, the sites are updated for these, and so on until the bound gains no more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ..gaussian_process import GaussianProcess
from .lbfgs import Minimise
from .sites import Sites, Step, converged, rows_of, step

MAX_ROUNDS = 20
"""The maximal number of rounds."""

TOLERANCE = 1e-4
"""Rounds end when the bound gains less than this for each row."""


class Rows(NamedTuple):
    """The rows that the bound is of."""

    X: TensorType
    """[N, D]."""
    Y: TensorType
    """Observations, as the likelihood takes them: [N, P]."""
    means: TensorType
    """F, what is added to m_P, with weights, at the rows: [N, C, J]."""


class SiteFit:
    """The parameters of the bound, and its graph, which is traced once.

    :param prior: P before it is conditioned; it is fitted in place.
    :param likelihood: p(y | f); what is trainable of it is fitted in place.
    :param num_means: C, the number of means that are added to m_P, with a weight each.
    """

    def __init__(self, prior: GaussianProcess, likelihood: Likelihood, num_means: int = 0) -> None:
        self.prior = prior
        self.likelihood = likelihood
        self._roots = tf.Variable(tf.zeros([num_means, 1], default_float()))
        self.lock = threading.Lock()
        self._parameters: Sequence[Parameter] = [
            *prior.trainable_parameters,
            *likelihood.trainable_parameters,
        ]
        self.variables: list[tf.Variable] = [
            *(parameter.unconstrained_variable for parameter in self._parameters),
            self._roots,
        ]
        self._graph: Any = None

    @property
    def weights(self) -> tf.Tensor:
        """The weights of the means, [C, 1]: squares, so that none is below zero.

        The more observations of a fold are above average, the lower are cross-fitted predictions of
        them, and a weight below zero would make use of that.
        """
        return tf.square(self._roots)

    def start_weights(self, weight: float) -> None:
        """Let all weights start at a value."""
        self._roots.assign(tf.fill(self._roots.shape, tf.constant(weight**0.5, default_float())))

    def mean(self, rows: Rows) -> tf.Tensor:
        """Return m_P at the rows: [N, J]."""
        added = tf.reduce_sum(self.weights * rows.means, axis=1)
        return self.prior.mean_function(rows.X) + added

    def fit(
        self, minimise: Minimise, Z: AnyNDArray, rows: Rows, sites: Sites, *, means: bool
    ) -> tuple[float, Sites]:
        """Fit the parameters, and return minus the bound, and the sites.

        :param minimise: how the bound for given sites is maximised.
        :param Z: the inducing points, [M, D].
        :param rows: the rows.
        :param sites: the sites to start from.
        :param means: whether the weights of the means are fitted.
        """
        Z, rows = tf.convert_to_tensor(Z), Rows(*map(tf.convert_to_tensor, rows))
        variables = self.variables if means else self.variables[:-1]
        update = self._update(Z, rows, sites)
        sites, bound = converged(update, sites)
        for _ in range(MAX_ROUNDS):
            minimise(_Loss(self, (Z, rows, sites)), variables)
            sites, after = converged(update, sites)
            gain, bound = after - bound, after
            if gain < TOLERANCE * len(rows.X):
                break
        return -bound, sites

    def sites(self, Z: AnyNDArray, rows: Rows, sites: Sites) -> Sites:
        """Return the sites for the parameters as they are.

        :param Z: the inducing points, [M, D].
        :param rows: the rows.
        :param sites: the sites to start from.
        """
        Z, rows = tf.convert_to_tensor(Z), Rows(*map(tf.convert_to_tensor, rows))
        return converged(self._update(Z, rows, sites), sites)[0]

    def _update(self, Z: tf.Tensor, rows: Rows, sites: Sites) -> Callable[[Sites], Step]:
        """Return a step as a function of sites, by a graph that takes any number of rows."""
        if self._graph is None:
            of_any_length = tf.nest.map_structure(
                lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), (Z, rows, sites)
            )
            self._graph = tf.function(
                self._evaluate, autograph=False, input_signature=of_any_length
            )
        return lambda sites: self._graph(Z, rows, sites)[0]

    def _evaluate(self, Z: tf.Tensor, rows: Rows, sites: Sites) -> tuple[Step, list[tf.Tensor]]:
        """Return the bound, an update, and gradients of the variables.

        The bound includes the log density of the hyper-parameters under their own priors.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            at_rows = rows_of(self.prior.kernel, Z, rows.X, rows.Y, self.mean(rows))
            bound, updated = step(at_rows, self.likelihood, sites)
            if self._parameters:
                bound += tf.add_n([each.log_prior_density() for each in self._parameters])
        gradients = tape.gradient(bound, self.variables, unconnected_gradients="zero")
        return Step(bound, updated), gradients


class _Loss:
    """Minus the bound for given rows and sites, with the gradients of any of its variables."""

    def __init__(self, fit: SiteFit, arguments: tuple[tf.Tensor, Rows, Sites]) -> None:
        self._fit = fit
        self._arguments = arguments

    def __call__(self) -> tf.Tensor:
        return -self._fit._graph(*self._arguments)[0].bound

    def value_and_gradients(
        self, variables: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        step, gradients = self._fit._graph(*self._arguments)
        of_variable = {id(v): g for v, g in zip(self._fit.variables, gradients, strict=True)}
        return -step.bound, [-of_variable[id(variable)] for variable in variables]

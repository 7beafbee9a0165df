"""The bound of the evidence for given sites as a function of the parameters of P and a likelihood.

Its formulas are what graphs are traced from; `SiteFit` has the graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood

from ..gaussian_process import GaussianProcess
from .lbfgs import by_tape
from .sites import Covariances, Sites, Step, covariances, rows_of, step
from .sites import Rows as AtRows

SCALE_OF_WEIGHTS = 2.0
"""The standard deviation of the prior of weights, before it is cut off at zero."""


class Rows(NamedTuple):
    """The rows that the bound is of."""

    X: TensorType
    """[N, D]."""
    Y: TensorType
    """Observations, as the likelihood takes them: [N, P]."""
    means: TensorType
    """F, what is added to m_P, with weights, at the rows: [N, C, J]."""
    Z: TensorType | None
    """Inducing points, [M, D]; None if each row is one, where NumPy knows the kernel."""


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
        self.beside_kernel = self.variables[len(self.of_kernel) :]
        """The variables of the mean function, the likelihood and the weights."""

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
        return rows_of(at, rows.X, rows.Y, self.means(rows.X, rows.means))

    def means(self, X: TensorType, means: TensorType) -> tf.Tensor:
        """Return m_P(X), with the means that are added to it, [N, C, J]: [N, J]."""
        return self.prior.mean_function(X) + tf.reduce_sum(self.weights * means, axis=1)

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
        sources = at, self.beside_kernel
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            bound = self.step(self.rows(at, rows), sites).bound + self.log_prior_of_others()
        return bound, *tape.gradient(bound, sources, unconnected_gradients="zero")

    def gradients_of_means(
        self, X: TensorType, means: TensorType, by_m: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the log prior of others, and gradients of it and, by m_P(X), of the bound."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.beside_kernel)
            log_prior = self.log_prior_of_others()
            total = log_prior + tf.reduce_sum(by_m * self.means(X, means))
        return log_prior, tape.gradient(total, self.beside_kernel, unconnected_gradients="zero")

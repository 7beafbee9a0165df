"""The regulariser P: its kernel, its inducing points, and how its hyper-parameters are fitted."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import gpflow_gvi as gvi

from .kernels import Kernel, Recipe, Site
from .parts import BY_KIND, OR_NAME, Count, Part, Positive

if TYPE_CHECKING:
    from ..evidence import Evidence as GVIEvidence
    from ..inducing import Select as GVISelect
    from ..optimisation import Minimise as GVIMinimise
    from ..regulariser import Regulariser as FittedRegulariser


class PowerOfN(Part):
    """factor · N^(1/power) points, rounded down; at least one."""

    factor: Positive = 1.0
    power: Positive


class Select(Part):
    """How inducing points are chosen."""

    kind: Literal["kmeans", "uniform"]

    def build(self) -> GVISelect:
        """Return the function."""
        function: GVISelect = getattr(gvi.inducing, self.kind)
        return function


class GreedyVariance(Part):
    """One row of X after another, each where the others leave most variance."""

    kind: Literal["greedy_variance"] = "greedy_variance"
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 1e-8

    def build(self) -> GVISelect:
        """Return the function."""
        return functools.partial(gvi.inducing.greedy_variance, tolerance=self.tolerance)


class InducingEvidence(Part):
    """The evidence of the observations at the inducing points, on which P is conditioned."""

    kind: Literal["inducing"] = "inducing"
    max_rows: ClassVar[int | None] = None

    def build(self) -> GVIEvidence:
        """Return the evidence."""
        return gvi.evidence.InducingEvidence()


class DataEvidence(Part):
    """A bound of the evidence of all data, on which P is conditioned."""

    kind: Literal["data"] = "data"
    max_rows: Count | None = 2000
    """Hyper-parameters are fitted to at most so many rows; null for all of them."""

    def build(self) -> GVIEvidence:
        """Return the evidence."""
        return gvi.evidence.DataEvidence()


class LBFGS(Part):
    """L-BFGS, for hyper-parameters."""

    kind: Literal["lbfgs"] = "lbfgs"
    max_iterations: Count = 200

    def build(self) -> GVIMinimise:
        """Return the function that minimises."""
        from ..optimisation import lbfgs

        return functools.partial(lbfgs, max_iterations=self.max_iterations)


class AdamSteps(Part):
    """Steps of Adam, for hyper-parameters."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive = 0.01
    steps: Count = 1000

    def build(self) -> GVIMinimise:
        """Return the function that minimises."""
        return self._minimise

    def _minimise(self, loss: Any, variables: Any) -> None:
        import keras
        import tensorflow as tf

        optimizer = keras.optimizers.Adam(self.learning_rate)
        variables = list(variables)
        optimizer.build(variables)

        @tf.function
        def run() -> tf.Tensor:
            for _ in tf.range(self.steps):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(variables)
                    value = loss()
                gradients = tape.gradient(value, variables, unconnected_gradients="zero")
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss()

        # Called by itself it would be warned of: it is traced anew in each round.
        if not np.isfinite(run.get_concrete_function()()):
            raise gvi.errors.NonFiniteLossError(
                f"The evidence is not finite after {self.steps} steps of Adam. Take a smaller "
                f"regulariser.minimise.learning_rate than {self.learning_rate}, or lbfgs."
            )


Selection = Annotated[Select | GreedyVariance, BY_KIND, OR_NAME]
Evidence = Annotated[InducingEvidence | DataEvidence, BY_KIND, OR_NAME]
Minimise = Annotated[LBFGS | AdamSteps, BY_KIND, OR_NAME]


class Regulariser(Part):
    """P: its kernel, its inducing points, and how its hyper-parameters are fitted."""

    kernel: Kernel = Recipe()
    mode: Literal["posterior", "prior"] = "posterior"
    """Whether P is conditioned on the observations that the evidence is of."""
    evidence: Evidence = DataEvidence()
    inducing: Count | PowerOfN = 200
    """The number of inducing points."""
    select: Selection = GreedyVariance()
    max_rounds: Count = 1
    """At most so many times points are chosen, and hyper-parameters fitted to what is there."""
    minimise: Minimise = LBFGS()

    def num_inducing(self, N: int) -> int:
        """Return the number M of inducing points for N rows."""
        if isinstance(self.inducing, int):
            return self.inducing
        # 64^(1/3) is 3.999... in floating point.
        return max(1, int(self.inducing.factor * N ** (1.0 / self.inducing.power) + 1e-9))

    def build(self, site: Site, likelihood: Any = None, held_out: Any = None) -> FittedRegulariser:
        """Return the fitted regulariser.

        :param site: the data to fit it to.
        :param likelihood: of labels, or None.
        :param held_out: (X, Y) to choose among several kernels by, if any.
        """
        from ..stopping import tempered_nll

        rows = slice(self.evidence.max_rows)
        kernels = self.kernel.build(site)
        evidence, select = self.evidence.build(), self.select.build()
        M = self.num_inducing(len(site.X))
        found = [
            gvi.fit_regulariser(
                (site.X[rows], site.Y[rows]),
                kernel,
                M,
                likelihood=likelihood,
                evidence=evidence,
                select=select,
                minimise=self.minimise.build(),
                max_rounds=self.max_rounds,
                seed=site.seed,
            )
            for kernel in (kernels if isinstance(kernels, list) else [kernels])
        ]
        if held_out is None:
            best = max(found, key=lambda fit: fit.log_evidence)
        else:
            best = min(
                found, key=lambda fit: float(tempered_nll(fit.posterior, fit.likelihood, held_out))
            )
        if len(site.X[rows]) == len(site.X):
            return best
        points = select(site.X, M, kernel=best.prior.kernel, seed=site.seed).points
        posterior = evidence.posterior(
            best.prior, best.noise.variance, (points, None), (site.X, site.responses)
        )
        return best._replace(posterior=posterior, inducing_points=points, inducing_outputs=None)

    def process(self, fitted: FittedRegulariser) -> gvi.GaussianProcess:
        """Return P."""
        return fitted.posterior if self.mode == "posterior" else fitted.prior

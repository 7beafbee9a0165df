"""The regulariser P: its kernel, its inducing points, and how its hyper-parameters are fitted."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import gpflow_gvi as gvi

from ..learning import settings
from ..learning.settings import NUM_INDUCING, Noise, RegulariserSettings
from .kernel_parts import Kernel
from .parts import BY_KIND, OR_NAME, Count, Part, Positive
from .training_parts import descend

if TYPE_CHECKING:
    from gpflow.kernels import Kernel as GPflowKernel

    from ..learning.start import TrainingData
    from ..regulariser.evidence import Evidence as GVIEvidence
    from ..regulariser.inducing_points import Select as GVISelect
    from ..regulariser.lbfgs import Minimise as GVIMinimise


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
    max_rows: Count | None = RegulariserSettings.max_rows
    """The maximal number of rows that hyper-parameters are fitted to; null for all rows."""

    def build(self) -> GVIEvidence:
        """Return the evidence."""
        return gvi.evidence.DataEvidence()


class LBFGS(Part):
    """L-BFGS, for hyper-parameters."""

    kind: Literal["lbfgs"] = "lbfgs"
    max_iterations: Count = settings.LBFGS.max_iterations

    def build(self) -> GVIMinimise:
        """Return the function that minimises."""
        return settings.LBFGS(self.max_iterations)


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

        optimizer = keras.optimizers.Adam(self.learning_rate)
        if not np.isfinite(descend(loss, variables, optimizer, self.steps)):
            raise gvi.errors.NonFiniteLossError(
                f"The evidence is not finite after {self.steps} steps of Adam. Take a smaller "
                f"regulariser.minimise.learning_rate than {self.learning_rate}, or lbfgs."
            )


Selection = Annotated[Select | GreedyVariance, BY_KIND, OR_NAME]
Evidence = Annotated[InducingEvidence | DataEvidence, BY_KIND, OR_NAME]
Minimise = Annotated[LBFGS | AdamSteps, BY_KIND, OR_NAME]


class Regulariser(Part):
    """P: its kernel, its inducing points, and how its hyper-parameters are fitted."""

    kernel: Kernel = "recipe"
    predictors: Literal["recipe", "none"] | None = None
    """Whether P may be around cross-fitted trees; null for what `learn` does by default."""
    noise: Noise | None = None
    """Whether the noise varies with the input; null for what `learn` does by default."""
    mode: Literal["posterior", "prior"] = "posterior"
    """Whether P is conditioned on the observations that the evidence is of."""
    evidence: Evidence = DataEvidence()
    inducing: Count | PowerOfN = NUM_INDUCING
    """The maximal number of inducing points."""
    select: Selection = GreedyVariance()
    max_rounds: Count = RegulariserSettings.max_rounds
    """The maximal number of rounds of choosing points and fitting hyper-parameters to them."""
    minimise: Minimise = LBFGS()

    def num_inducing(self, N: int) -> int:
        """Return the number M of inducing points for N rows."""
        if isinstance(self.inducing, int):
            return self.inducing
        # 64^(1/3) is 3.999... in floating point.
        return max(1, int(self.inducing.factor * N ** (1.0 / self.inducing.power) + 1e-9))

    def build(self, *, is_default: bool = False) -> RegulariserSettings:
        """Return the settings of the fit.

        :param is_default: whether nothing of Q or its objective is given.
        """
        by_recipe = is_default and self.kernel.kind == "recipe"
        wanted = by_recipe if self.predictors is None else self.predictors == "recipe"
        return RegulariserSettings(
            kernels=self._kernels,
            predictors=settings.recipe_predictors if wanted else None,
            noise=self.noise or ("auto" if by_recipe else "constant"),
            num_inducing=self.num_inducing,
            max_rows=self.evidence.max_rows,
            evidence=self.evidence.build(),
            select=self.select.build(),
            max_rounds=self.max_rounds,
            minimise=self.minimise.build(),
            process=operator.attrgetter(self.mode),
        )

    def _kernels(self, data: TrainingData) -> list[GPflowKernel]:
        kernels = self.kernel.build(data)
        return kernels if isinstance(kernels, list) else [kernels]

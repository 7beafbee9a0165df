"""The regulariser P: its kernel, its inducing points, and how its hyper-parameters are fitted."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

import gpflow_gvi as gvi

from ...learning import (
    LBFGS,
    MAX_INDUCING,
    NUM_INDUCING,
    RECIPE,
    TOLERANCE,
    Noise,
    RegulariserSettings,
)
from .kernels import Kernel
from .part import Count, Entry, LazyModule, Part, Positive, gpflow, one_of

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction
    from gpflow.kernels import Kernel as GPflowKernel

    from ...learning import TrainingData
    from ...regulariser.evidence import Evidence as GVIEvidence

evidence = LazyModule("gpflow_gvi.regulariser.evidence")


class PowerOfN(Part):
    """factor · N^(1/power) points, rounded down; at least one."""

    factor: Positive = 1.0
    power: Positive


# What is maximised by the hyper-parameters, and on what P is conditioned


def data_evidence(run: None, max_rows: Count | None = RegulariserSettings.max_rows) -> GVIEvidence:
    """The collapsed lower bound of the evidence of all data; P is conditioned on all of them.

    :param max_rows: The maximal number of rows that hyper-parameters are fitted to; null for all.
    """
    return evidence.DataEvidence()


EVIDENCE: dict[str, Entry] = {
    "inducing": lambda run: evidence.InducingEvidence(),
    "data": data_evidence,
}
Evidence = Annotated[Any, one_of("Evidence", EVIDENCE)]


class Minimiser(Part):
    """L-BFGS, for hyper-parameters."""

    kind: Literal["lbfgs"] = "lbfgs"
    max_iterations: Count = LBFGS.max_iterations
    tolerance: Positive = TOLERANCE
    """Stop when an iteration lowers the loss by less than this part of it."""


# The mean of P before it is conditioned


def constant_mean(data: TrainingData) -> MeanFunction:
    """A constant of each latent function, fitted with the hyper-parameters."""
    return gpflow.functions.Constant(np.mean(data.responses, axis=0))


def linear_mean(data: TrainingData) -> MeanFunction:
    """A linear function of the inputs, fitted with the hyper-parameters."""
    weights = np.zeros([data.X[0].size, data.J], data.X.dtype)
    return gpflow.functions.Linear(weights, np.mean(data.responses, axis=0))


MEANS: dict[str, Entry] = {
    "zero": lambda data: gpflow.functions.Zero(data.J),
    "constant": constant_mean,
    "linear": linear_mean,
}
Mean = Annotated[Any, one_of("MeanOfRegulariser", MEANS)]


class Regulariser(Part):
    """P: its kernel, its inducing points, and how its hyper-parameters are fitted."""

    kernel: Kernel = "recipe"
    mean: Mean | None = None
    """m_P before P is conditioned; null for what `learn` does by default."""
    predictors: Literal["recipe", "none"] | None = None
    """Whether P may be around cross-fitted trees; null for what `learn` does by default."""
    noise: Noise | None = None
    """Whether the noise varies with the input; null for what `learn` does by default."""
    mode: Literal["posterior", "prior"] = "posterior"
    """Whether P is conditioned on the observations that the evidence is of."""
    evidence: Evidence = "data"
    inducing: Count | PowerOfN | None = None
    """The maximal number of inducing points; null for what `learn` does by default."""
    select: Literal["kmeans", "uniform", "greedy_variance"] = "greedy_variance"
    max_rounds: Count = RegulariserSettings.max_rounds
    """The maximal number of rounds of choosing points and fitting hyper-parameters to them."""
    minimise: Minimiser = Minimiser()
    starts: Count = 1
    """The number of fits: the first from the kernel's values, the others from random ones near
    them; not with `kernel: recipe`, which has its own. With `evidence: inducing` the one is kept
    whose posterior predicts validation data best, as few observations do not tell noise from
    function."""

    @property
    def is_free(self) -> bool:
        """Whether nothing of what the recipe chooses among is chosen."""
        chosen = (self.mean, self.predictors, self.noise)
        return self.kernel.kind == "recipe" and all(each is None for each in chosen)

    def num_inducing(self, N: int) -> int:
        """Return the number M of inducing points for N rows."""
        if self.inducing is None:
            return NUM_INDUCING
        if isinstance(self.inducing, int):
            return self.inducing
        # 64^(1/3) is 3.999... in floating point.
        return max(1, int(self.inducing.factor * N ** (1.0 / self.inducing.power) + 1e-9))

    def build(
        self, *, is_default: bool = False, is_alone: bool = False, is_bounded: bool = False
    ) -> RegulariserSettings:
        """Return the settings of the fit.

        :param is_default: whether Q is not trained.
        :param is_alone: whether a network alone is the mean of a Q that is.
        :param is_bounded: whether its loss of a row is bounded.
        """
        is_followed = not (is_alone or is_bounded)
        by_recipe = is_followed and self.kernel.kind == "recipe"
        has_tails = is_alone and not is_bounded and self.kernel.kind == "recipe"
        wanted = by_recipe and is_default
        if self.predictors is not None:
            wanted = self.predictors == "recipe"
        return RegulariserSettings(
            kernels=None if self.kernel.kind == "recipe" else self._kernels,
            mean=None if self.mean is None else self.mean.build,
            predictors=RECIPE if wanted else None,
            noise=self.noise or ("auto" if by_recipe else "constant"),
            heavy_tails=True if has_tails and self.noise is None else None,
            num_inducing=self.num_inducing,
            max_inducing=MAX_INDUCING if is_followed and self.inducing is None else None,
            max_rows=getattr(self.evidence, "max_rows", None),
            evidence=self.evidence.build(),
            select=getattr(gvi.inducing, self.select),
            max_rounds=self.max_rounds,
            minimise=LBFGS(self.minimise.max_iterations, self.minimise.tolerance),
            process=operator.attrgetter(self.mode),
        )

    def _kernels(self, data: TrainingData) -> list[GPflowKernel]:
        random = np.random.default_rng(data.seed)
        found = []
        for number in range(self.starts):
            kernel = self.kernel.build(dataclasses.replace(data, seed=data.seed + number))
            for parameter in kernel.trainable_parameters if number else ():
                variable = parameter.unconstrained_variable
                variable.assign_add(random.normal(size=variable.shape))
            found.append(kernel)
        return found

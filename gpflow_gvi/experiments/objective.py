"""The objective: the likelihood, the loss, the divergence and where that is evaluated."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

import gpflow_gvi as gvi

from .parts import BY_KIND, OR_NAME, Count, Flag, NonNegative, Part, Positive

if TYPE_CHECKING:
    from gpflow.likelihoods import Likelihood as GPflowLikelihood

Array = np.ndarray[Any, Any]


# Likelihoods


class Gaussian(Part):
    """Gaussian noise; its variance is fitted with the regulariser."""

    kind: Literal["gaussian"] = "gaussian"
    trainable: Flag = True
    """Whether it is trained further with Q."""

    def build(self, Y: Array) -> GPflowLikelihood | None:
        """Return None: the regulariser makes it."""
        return None


class Classes(Part):
    """Labels 0, 1, ...: of two classes, or of as many as there are labels."""

    kind: Literal["bernoulli", "multi_class", "softmax"]

    def build(self, Y: Array) -> GPflowLikelihood:
        """Return the likelihood of the labels."""
        import gpflow

        if self.kind == "bernoulli":
            return gpflow.likelihoods.Bernoulli()
        J = int(np.max(Y)) + 1
        if self.kind == "multi_class":
            return gpflow.likelihoods.MultiClass(J)
        return gpflow.likelihoods.Softmax(J)


Likelihood = Annotated[Gaussian | Classes, BY_KIND, OR_NAME]


# Losses


class LogLoss(Part):
    """Minus the expected log density, or minus the log of the expected density."""

    kind: Literal["log_loss", "predictive_log_loss"]

    def build(self) -> gvi.losses.Loss:
        """Return the loss."""
        return gvi.losses.LogLoss() if self.kind == "log_loss" else gvi.losses.PredictiveLogLoss()


class BetaLoss(Part):
    """The robust β-loss."""

    kind: Literal["beta_loss"] = "beta_loss"
    beta: Positive = 1.5

    def build(self) -> gvi.losses.Loss:
        """Return the loss."""
        return gvi.losses.BetaLoss(self.beta)


class GammaLoss(Part):
    """The robust γ-loss."""

    kind: Literal["gamma_loss"] = "gamma_loss"
    gamma: Positive = 1.5

    def build(self) -> gvi.losses.Loss:
        """Return the loss."""
        return gvi.losses.GammaLoss(self.gamma)


Loss = Annotated[LogLoss | BetaLoss | GammaLoss, BY_KIND, OR_NAME]


# Contexts, in the units of the model: standard ones, unless `standardise` is false


class TrainingInputs(Part):
    """The inputs of the batch."""

    kind: Literal["training_inputs"] = "training_inputs"

    def build(self, X: Array, seed: int) -> gvi.contexts.Context:
        """Return the context."""
        return gvi.contexts.TrainingInputs()


class UniformBox(Part):
    """Points of the box around the inputs to train with."""

    kind: Literal["uniform_box"] = "uniform_box"
    margin: NonNegative = 0.5
    """How far it goes beyond them, in each direction."""
    num_points: Count | None = None

    def build(self, X: Array, seed: int) -> gvi.contexts.Context:
        """Return the context."""
        lower, upper = X.min(axis=0) - self.margin, X.max(axis=0) + self.margin
        return gvi.contexts.UniformBox(lower, upper, self.num_points, seed=seed)


class GaussianNoise(Part):
    """Inputs of the batch, moved at random."""

    kind: Literal["gaussian_noise"] = "gaussian_noise"
    scale: Positive = 0.5
    num_points: Count | None = None

    def build(self, X: Array, seed: int) -> gvi.contexts.Context:
        """Return the context."""
        return gvi.contexts.GaussianNoise(self.scale, self.num_points, seed=seed)


class Together(Part):
    """The points of several contexts."""

    kind: Literal["sum"] = "sum"
    parts: Annotated[tuple[Context, ...], Field(min_length=2)]

    def build(self, X: Array, seed: int) -> gvi.contexts.Context:
        """Return the context."""
        return functools.reduce(operator.add, [part.build(X, seed) for part in self.parts])


Context = Annotated[TrainingInputs | UniformBox | GaussianNoise | Together, BY_KIND, OR_NAME]


# Divergences


class InducingKL(Part):
    """KL between the laws of the inducing variables: variational inference as GPflow has it."""

    kind: Literal["inducing_kl"] = "inducing_kl"
    weight: NonNegative = 1.0

    def build(self, X: Array, seed: int) -> gvi.divergences.Divergence:
        """Return the divergence."""
        return gvi.divergences.InducingKL()


class _AtInputs(Part):
    """A divergence that is an average over inputs."""

    weight: NonNegative = 0.1
    """λ; the default is that of `gpflow_gvi.learn`."""
    context: Context | None = None
    """Where it is evaluated instead of at the inputs of the batch."""

    def _context(self, X: Array, seed: int) -> gvi.contexts.Context | None:
        return None if self.context is None else self.context.build(X, seed)


_PROJECTED = {
    "projected_kl": "ProjectedKL",
    "projected_reverse_kl": "ProjectedReverseKL",
    "projected_bhattacharyya": "ProjectedBhattacharyya",
    "projected_hellinger": "ProjectedHellinger",
    "projected_wasserstein": "ProjectedWasserstein",
    "projected_squared_difference": "ProjectedSquaredDifference",
}


class Projected(_AtInputs):
    """A divergence of marginals."""

    kind: Literal[
        "projected_kl",
        "projected_reverse_kl",
        "projected_bhattacharyya",
        "projected_hellinger",
        "projected_wasserstein",
        "projected_squared_difference",
    ]

    def build(self, X: Array, seed: int) -> gvi.divergences.Divergence:
        """Return the divergence."""
        kind = getattr(gvi.divergences, _PROJECTED[self.kind])
        return kind(context=self._context(X, seed))


class ProjectedRenyi(_AtInputs):
    """The Rényi divergence of marginals."""

    kind: Literal["projected_renyi"] = "projected_renyi"
    alpha: Positive = 0.5

    def build(self, X: Array, seed: int) -> gvi.divergences.Divergence:
        """Return the divergence."""
        return gvi.divergences.ProjectedRenyi(self.alpha, context=self._context(X, seed))


class GaussianWasserstein(_AtInputs):
    """The 2-Wasserstein distance on function space."""

    kind: Literal["gaussian_wasserstein"] = "gaussian_wasserstein"
    estimator: Literal["exact", "newton_schulz", "blocks", "low_rank", "landmark", "marginal"] = (
        "exact"
    )

    def build(self, X: Array, seed: int) -> gvi.divergences.Divergence:
        """Return the divergence."""
        return gvi.divergences.GaussianWasserstein(self.estimator, context=self._context(X, seed))


class RegularisedKL(_AtInputs):
    """KL on function space, made finite."""

    kind: Literal["regularised_kl"] = "regularised_kl"
    gamma: Positive = 1e-2

    def build(self, X: Array, seed: int) -> gvi.divergences.Divergence:
        """Return the divergence."""
        return gvi.divergences.RegularisedKL(self.gamma, context=self._context(X, seed))


Divergence = Annotated[
    InducingKL | Projected | ProjectedRenyi | GaussianWasserstein | RegularisedKL, BY_KIND, OR_NAME
]

Together.model_rebuild()

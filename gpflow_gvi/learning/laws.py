"""The law of real-valued y at each row: its quantiles and scores."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .rows.targets import Units

NUM_HALVINGS = 60
"""Halvings of the interval that holds a quantile: down to the precision of float64."""

TAIL = np.logspace(-7.0, -3.0, 9)
LEVELS = np.concatenate([TAIL, np.linspace(0.005, 0.995, 100), 1.0 - TAIL])
"""Levels whose quantiles are the nodes of integrals."""


class Law(abc.ABC):
    """The law of y at rows, whose outputs are independent."""

    @abc.abstractmethod
    def cdf(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the probability of not more than y: [..., N, J]."""

    @abc.abstractmethod
    def quantile(self, level: float) -> AnyNDArray:
        """Return the quantiles of a level between 0 and 1: [N, J]."""

    @abc.abstractmethod
    def nodes(self) -> list[AnyNDArray]:
        """Return values that are close where y has probability: [N, J] each."""

    def crps(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the continuous ranked probability score ∫ (F(z) - 1{y ≤ z})² dz: [N, J].

        Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction, and estimation",
        equation 20 with the sign turned, by the trapezoidal rule between quantiles.
        """
        Y = np.asarray(Y)
        z = np.sort([*self.nodes(), Y], axis=0)  # [S, N, J]
        F = self.cdf(z)
        below, above = np.square(F), np.square(1.0 - F)
        width = np.diff(z, axis=0)
        left = 0.5 * width * (below[1:] + below[:-1])
        right = 0.5 * width * (above[1:] + above[:-1])
        return np.sum(np.where(z[1:] <= Y, left, right), axis=0)


@dataclasses.dataclass(frozen=True)
class LawOfUnits(Law):
    """The law of y that follows from the law in standard units."""

    standard: Any
    """A distribution of SciPy, [N, J]."""
    units: Units

    def cdf(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the probability of not more than y: [..., N, J]."""
        return np.asarray(self.standard.cdf(np.asarray(self.units.scaled(Y))))

    def quantile(self, level: float) -> AnyNDArray:
        """Return the quantiles of a level between 0 and 1: [N, J]."""
        return np.asarray(self.units.original(self.standard.ppf(level)))

    def nodes(self) -> list[AnyNDArray]:
        """Return values that are close where y has probability: [N, J] each."""
        return [self.quantile(level) for level in LEVELS]


@dataclasses.dataclass(frozen=True)
class Mixture(Law):
    """Σ_c w_c p_c(y)."""

    parts: Sequence[Law]
    weights: Sequence[float]

    def cdf(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the probability of not more than y: [..., N, J]."""
        parts = zip(self.weights, self.parts, strict=True)
        return np.sum([weight * part.cdf(Y) for weight, part in parts], axis=0)

    def quantile(self, level: float) -> AnyNDArray:
        """Return the quantiles of a level, which are between those of the parts: [N, J]."""
        ends = np.array([part.quantile(level) for part in self.parts])
        below, above = ends.min(axis=0), ends.max(axis=0)
        for _ in range(NUM_HALVINGS):
            middle = 0.5 * (below + above)
            is_below = self.cdf(middle) < level
            below, above = np.where(is_below, middle, below), np.where(is_below, above, middle)
        return above

    def nodes(self) -> list[AnyNDArray]:
        """Return values that are close where the parts have probability: [N, J] each."""
        return [node for part in self.parts for node in part.nodes()]

"""The law of real-valued y at each row: its quantiles and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .._core import checks
from .rows.targets import Units

NUM_HALVINGS = 60
"""Halvings of the interval that holds a quantile: down to the precision of float64."""

TAIL = np.logspace(-7.0, -3.0, 9)
LEVELS = np.concatenate([TAIL, np.linspace(0.005, 0.995, 100), 1.0 - TAIL])
"""Levels whose quantiles are the nodes of integrals."""


@dataclasses.dataclass(frozen=True)
class Law:
    """The law of y at rows, whose outputs are independent: Σ_c w_c p_c(y)."""

    parts: Sequence[tuple[Any, Units]]
    """For each p_c a distribution of SciPy, [N, J], of y in its standard units, and these units."""
    weights: Sequence[float] = (1.0,)

    def cdf(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the probability of not more than y, a number or [..., N, J]: [..., N, J].

        Where there is one output, a vector [N] is a column.
        """
        return self._cdf(self._rows(Y))

    def _cdf(self, Y: AnyNDArray) -> AnyNDArray:
        each = [law.cdf(np.asarray(units.scaled(np.asarray(Y)))) for law, units in self.parts]
        return np.sum([w * F for w, F in zip(self.weights, each, strict=True)], axis=0)

    def quantile(self, level: float) -> AnyNDArray:
        """Return the quantiles of a level between 0 and 1: [N, J]."""
        checks.coverage(level, "level")
        ends = self._quantiles(level)  # that of a mixture is between them
        below, above = ends.min(axis=0), ends.max(axis=0)
        for _ in range(NUM_HALVINGS if len(ends) > 1 else 0):
            middle = 0.5 * (below + above)
            is_below = self._cdf(middle) < level
            below, above = np.where(is_below, middle, below), np.where(is_below, above, middle)
        return above

    def crps(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the continuous ranked probability score ∫ (F(z) - 1{y ≤ z})² dz: [N, J].

        y is [N, J], or where there is one output a vector [N].

        Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction, and estimation",
        equation 20 with the sign turned, by the trapezoidal rule between quantiles of the parts.
        """
        Y = np.broadcast_to(self._rows(Y, sets=False), self._shape)
        nodes = np.concatenate([self._quantiles(level) for level in LEVELS])
        z = np.sort([*nodes, Y], axis=0)  # [S, N, J]
        F = self._cdf(z)
        below, above = np.square(F), np.square(1.0 - F)
        width = np.diff(z, axis=0)
        left = 0.5 * width * (below[1:] + below[:-1])
        right = 0.5 * width * (above[1:] + above[:-1])
        return np.sum(np.where(z[1:] <= Y, left, right), axis=0)

    @property
    def _shape(self) -> tuple[int, ...]:
        """[N, J]."""
        return np.shape(self.parts[0][0].ppf(0.5))

    def _rows(self, Y: Any, *, sets: bool = True) -> AnyNDArray:
        """Return values of y as a number or [..., N, J], without another shape to broadcast.

        :param sets: whether several values of each y may be given.
        """
        values, shape = np.asarray(checks.array_of_any("Y", Y)), self._shape
        if values.ndim == 1 and values.shape == shape[:1] and shape[1:] == (1,):
            return values[:, None]
        if values.ndim == 0 or (values.shape[-2:] if sets else values.shape) == shape:
            return values
        raise ValueError(
            f"Y has shape {values.shape}, but the law is of {shape[0]} rows and {shape[1]} "
            f"outputs. Pass Y of shape {shape}, a value for each."
        )

    def _quantiles(self, level: float) -> AnyNDArray:
        """Return the quantiles of each part: [C, N, J]."""
        return np.array([units.original(law.ppf(level)) for law, units in self.parts])

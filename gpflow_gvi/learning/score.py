"""How well a candidate predicts rows that nothing of its fit has seen.

The groups of rows are parted into folds. For each fold the hyper-parameters are fitted once more to
the other rows, from where all rows have brought them, predictors are those that have not seen the
fold either, and P is conditioned as it will be in the end. Few rows are parted more than once, as a
single partition of them decides by chance.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy import stats

from ..calibration.tails import scale_and_degrees_of_freedom

NUM_FOLDS = 5
"""K: each fit lacks a fifth of the rows, which costs little of what it predicts."""

MAX_ROWS_OF_PARTITIONS = 300
"""Up to this number of rows there are several partitions."""

NUM_PARTITIONS = 3
"""Of few rows."""

MIN_DENSITY = 1e-300
"""The smallest probability of a value on a grid, whose logarithm is finite."""

MAX_FACTOR = 5.0
"""A larger factor of variances says that P is wrong, which no factor mends."""

MIN_FACTOR = 1e-3
"""A small factor is that of a function without noise that is smoother than the prior has it."""


class Predictions(NamedTuple):
    """Predictions of observations, noise included, by what was fitted without them."""

    mean: AnyNDArray
    """Of each partition: [R, N, J]."""
    variance: AnyNDArray
    """[R, N, J]."""
    Y: AnyNDArray
    """What was observed: [N, J]."""

    @property
    def squares(self) -> AnyNDArray:
        """The squared errors in units of the variance: [R, N, J]."""
        return np.square(self.Y - self.mean) / self.variance


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What makes predictions as wide as their errors: y ~ m + √(α v) t_ν."""

    factor: AnyNDArray
    """α: [J]."""
    df: AnyNDArray | None
    """ν: [J]; None for a Gaussian law."""

    @classmethod
    def of(
        cls, predictions: Predictions, *, tails: bool, max_factor: float = MAX_FACTOR
    ) -> Calibration:
        """Return the factor, and the tails, of the greatest posterior density."""
        bounds = MIN_FACTOR, max_factor
        columns = np.moveaxis(predictions.squares, -1, 0)  # [J, R, N]
        if not tails:
            factor = np.mean(columns, axis=(1, 2))
            return cls(np.clip(factor, *bounds), None)
        found = [scale_and_degrees_of_freedom(column, bounds) for column in columns]
        factor, df = np.array(found, predictions.Y.dtype).T
        return cls(factor, df)

    def log_densities(self, predictions: Predictions, spacing: AnyNDArray) -> AnyNDArray:
        """Return the log density of each observation, averaged over partitions: [N].

        Of values on a grid it is that of the interval that was rounded to the value, whose
        probability a spike at the value does not raise above one.

        :param spacing: δ of each output, ∞ where there is no grid: [J].
        """
        scale = np.sqrt(self.factor * predictions.variance)  # [R, N, J]
        error = predictions.Y - predictions.mean
        total = np.zeros(predictions.mean.shape[:2])
        for j, delta in enumerate(spacing):
            law = self._law(j)
            e, s = error[..., j], scale[..., j]
            if np.isfinite(delta):
                # In the lower tail, where differences are exact.
                upper, lower = (delta / 2 - np.abs(e)) / s, (-delta / 2 - np.abs(e)) / s
                mass = np.maximum(law.cdf(upper) - law.cdf(lower), MIN_DENSITY)
                total += np.log(mass / delta)
            else:
                total += law.logpdf(e / s) - np.log(s)
        return np.mean(total, axis=0)

    def _law(self, j: int) -> stats.distributions.rv_frozen:
        """Return the law of errors in units of their standard deviation."""
        if self.df is None:
            return stats.norm()
        return stats.t(self.df[j], scale=np.sqrt((self.df[j] - 2.0) / self.df[j]))


def num_partitions(num_rows: int) -> int:
    """Return R."""
    return NUM_PARTITIONS if num_rows <= MAX_ROWS_OF_PARTITIONS else 1

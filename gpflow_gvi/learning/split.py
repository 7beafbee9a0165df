"""The rows by what they are for, and their units."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from .._core import labels
from .._core.data import Data
from .._core.errors import NumericsWarning
from ..calibration.tempering import MIN_VALIDATION_POINTS
from .scaling import Scaling

if TYPE_CHECKING:
    from .settings import Settings

Array = np.ndarray[Any, Any]
Rows = tuple[Array, Array]
"""(X, Y): [N, D] and [N, J], or labels [N, 1]."""


@dataclasses.dataclass(frozen=True)
class Split:
    """The rows to train, to validate and to calibrate with, in original units."""

    train: Rows
    validation: Rows | None
    calibration: Rows | None
    holds_out: bool
    """Whether the rows for validation were held out of the data, and not given beside them."""
    inputs: Scaling
    """Standard units of X."""
    outputs: Scaling
    """Standard units of Y."""

    @classmethod
    def of(
        cls, data: RegressionData, settings: Settings, validation_data: RegressionData | None = None
    ) -> Split:
        """Return the split of data, at random by the seed of the settings.

        :param data: (X, Y), in any units.
        :param settings: the fractions, the seed, the units and the likelihood.
        :param validation_data: (X, Y) to validate with; by default a part of the data.
        """
        likelihood = settings.likelihood
        of_classes = labels.num_classes(likelihood) is not None
        X, Y = _arrays(("X", "Y"), data, likelihood)
        if settings.standardise and not of_classes:
            _require_variation(Y)
        order = np.random.default_rng(settings.seed).permutation(len(X))
        order, calibration = _hold_out("calibration_fraction", settings, order)
        if validation_data is None:
            order, held_out = _hold_out("validation_fraction", settings, order)
            validation = (X[held_out], Y[held_out]) if len(held_out) else None
        else:
            names = ("validation_data[0]", "validation_data[1]")
            validation = _arrays(names, validation_data, likelihood)
        return cls(
            (X[order], Y[order]),
            validation,
            (X[calibration], Y[calibration]) if len(calibration) else None,
            validation is not None and validation_data is None,
            Scaling.of(X) if settings.standardise else Scaling.none(X),
            Scaling.of(Y) if settings.standardise and not of_classes else Scaling.none(Y),
        )

    @property
    def fitting(self) -> Rows:
        """The rows for training and those that were held out for validation."""
        if not self.holds_out or self.validation is None:
            return self.train
        X, Y = (np.concatenate(parts) for parts in zip(self.train, self.validation, strict=True))
        return X, Y

    def standard(self, rows: RegressionData) -> Rows:
        """Return rows in standard units."""
        return self.inputs.standard(rows[0]).numpy(), self.outputs.standard(rows[1]).numpy()


def column(Y: TensorType) -> TensorType:
    """Return a vector as one column, and anything else as it is."""
    return Y[:, None] if len(Y.shape) == 1 else Y


def _arrays(names: tuple[str, str], data: RegressionData, likelihood: Likelihood | None) -> Rows:
    """Return inputs and outputs as arrays of the default float; a vector Y is one column."""
    X, Y = Data.of(data, likelihood, names=names)
    return np.asarray(X), np.asarray(Y, dtype=default_float())


def _require_variation(Y: Array) -> None:
    constant = np.flatnonzero(Scaling.of(Y).standard(Y).numpy().std(axis=0) < 0.5)
    if len(Y) > 1 and len(constant):
        raise ValueError(
            f"Y is constant in column {constant[0]} (it is {Y[0, constant[0]]}): there is nothing "
            "to learn, and no scale for errors. Leave such columns out."
        )


def _hold_out(name: str, settings: Settings, rows: Array) -> tuple[Array, Array]:
    """Return the rows in two parts, the second of which has the given fraction, or is empty."""
    fraction = settings.held_out if name == "validation_fraction" else settings.calibration_fraction
    if not 0.0 <= fraction < 1.0:
        raise ValueError(f"{name} is {fraction}; it must be at least 0 and less than 1.")
    count = max(round(fraction * len(rows)), MIN_VALIDATION_POINTS) if fraction else 0
    if count > len(rows) // 3:
        warnings.warn(
            f"{name}={fraction}: {len(rows)} rows are too few to hold out {count}, so none are, "
            "and predictions are neither stopped, tempered nor calibrated by unseen data.",
            NumericsWarning,
            stacklevel=4,
        )
        count = 0
    return rows[: len(rows) - count], rows[len(rows) - count :]

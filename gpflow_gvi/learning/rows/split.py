"""The rows by what they are for, and their units."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ..._core import checks, domains, images, labels
from ..._core.data import Data
from ...calibration.tempering import MIN_VALIDATION_POINTS
from ...errors import NumericsWarning, short_repr
from ...likelihoods import is_gaussian
from ..row_facts import (
    GROSS_RATIO,
    gross_rows,
    left_out_together,
    repeats,
    warn_of_atoms,
    warn_of_labels,
    warn_of_lost_columns,
)
from .scaling import Scaling
from .streams import Stream, are_booleans, survey

if TYPE_CHECKING:
    from ..settings import Settings
    from .targets import Units

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
    """Whether the rows for validation join the others in the end: they were held out of the data,
    and not given beside them. Those of a sample are too few to read all rows again for."""
    inputs: Scaling
    """Standard units of X."""
    outputs: Units
    """Standard units of Y."""
    stream: Stream | None = None
    """All rows but those held out, where `train` is a sample of them."""
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    """What was found in the rows: how many repeat, and how many count for nothing."""
    weights: Array | None = None
    """Those of `train`, as `TrainingData` has them."""

    @classmethod
    def of(
        cls, data: Any, settings: Settings, validation_data: RegressionData | None = None
    ) -> Split:
        """Return the split of data, at random by the seed of the settings.

        If data come in blocks, and are not few, the parts are those of a sample.

        :param data: (X, Y), in any units; or a Dataset or `ParquetRows`.
        :param validation_data: (X, Y) to validate with; by default a part of the data.
        """
        likelihood = settings.likelihood
        around = settings.regulariser.predictors is not None and is_gaussian(likelihood)
        for_predictors = around and not settings.trains_q
        seen = survey(data, likelihood, settings.seed, for_predictors=for_predictors)
        weights = settings.sample_weight
        if weights is not None and seen is not None:
            raise ValueError("sample_weight is for arrays in memory: load X, or leave it out.")
        X, Y = _arrays("data", ("X", "Y"), data if seen is None else seen.rows, likelihood)
        shape = X.shape[1:] if settings.input_shape is None else settings.input_shape
        if settings.input_shape is None:
            images.refuse_sets(X)
        if len(shape) > 1 and settings.regulariser.kernels is None:
            raise ValueError(
                f"X has shape {X.shape}: the default kernels are for tables of features, take "
                "very long for as many columns as images have, and predict badly. Pass a network, "
                "or a kernel on pixels; X.reshape(len(X), -1) makes rows of features."
            )
        are_pixels = X.ndim > 2
        X = _as_rows(X, settings)
        whole = None if seen is None or seen.stream.num_rows == len(X) else seen
        notes: dict[str, int] = {}
        if whole is None and is_gaussian(likelihood):
            kept, notes = sifted(X, Y, settings.numbers_of(X))
            X, Y = X[kept], Y[kept]
            weights = None if weights is None else weights[kept]
        if settings.standardise and not are_pixels:
            warn_of_lost_columns(X)
        if likelihood is None:
            warn_of_labels(Y)
            warn_of_atoms(Y)
        scaled = settings.standardise and domains.has_scale(likelihood)
        require_variation(Y, scaled=scaled)
        order = _shuffled(Y, settings)
        holds_out = settings.calibration_fraction or settings.held_out
        groups = left_out_together(X) if holds_out and len(shape) == 1 else None  # slow for images
        order, calibration = hold_out("calibration_fraction", settings, order, groups)
        if validation_data is None:
            order, held_out = hold_out("validation_fraction", settings, order, groups)
            validation = (X[held_out], Y[held_out]) if len(held_out) else None
        else:
            names = ("validation_data[0]", "validation_data[1]")
            Xv, Yv = _arrays("validation_data", names, validation_data, likelihood)
            validation = _as_rows(Xv, settings), Yv
        inputs, outputs = (Scaling.of(X), Scaling.of(Y)) if whole is None else whole.units
        if are_pixels:  # some hardly vary: all have the same map
            inputs = _units_of_pixels(X)
        return cls(
            (X[order], Y[order]),
            validation,
            (X[calibration], Y[calibration]) if len(calibration) else None,
            validation is not None and validation_data is None and whole is None,
            inputs if settings.standardise else Scaling.none(X),
            outputs if scaled else Scaling.none(Y),
            None if whole is None else whole.all_but(np.setdiff1d(np.arange(len(X)), order)),
            notes,
            None if weights is None else weights[order],
        )

    @property
    def fitting(self) -> Rows:
        """The rows for training and those that were held out for validation."""
        if not self.holds_out or self.validation is None:
            return self.train
        X, Y = (np.concatenate(parts) for parts in zip(self.train, self.validation, strict=True))
        return X, Y

    @property
    def set_aside(self) -> list[Rows]:
        """The rows that P is not fitted to: those to validate and those to calibrate with."""
        return [rows for rows in (self.validation, self.calibration) if rows is not None]

    @property
    def standard_validation(self) -> Rows | None:
        """The rows to validate with, in standard units."""
        return None if self.validation is None else self.standard(self.validation)

    def with_inputs(self, function: Callable[[Array], Array]) -> Split:
        """Return the same split with a function applied to X in each part."""

        parts = {name: getattr(self, name) for name in ("train", "validation", "calibration")}
        changed: dict[str, Any] = {
            name: (function(rows[0]), rows[1]) for name, rows in parts.items() if rows is not None
        }
        return dataclasses.replace(self, **changed)

    def calibrated_by_validation(self, settings: Settings) -> Split:
        """Return the same split, with a part of the rows for validation to calibrate with."""
        if self.validation is None:
            return self
        X, Y = self.validation
        kept, held_out = hold_out("calibration_fraction", settings, _shuffled(Y, settings))
        if not len(held_out):
            return self
        return dataclasses.replace(
            self, validation=(X[kept], Y[kept]), calibration=(X[held_out], Y[held_out])
        )

    def standard(self, rows: RegressionData) -> Rows:
        """Return rows in standard units."""
        return self.inputs.standard(rows[0]).numpy(), self.outputs.standard(rows[1]).numpy()


def weights_of_rows(sample_weight: Any, data: Any) -> Array:
    """Return the weights of the rows of data, some of them positive and none negative: [N]."""
    weights = checks.array("sample_weight", sample_weight)
    num_rows = len(data[0]) if _is_pair(data) else None
    is_one_each = weights.shape == (num_rows,) and weights.dtype.kind in "biuf"
    if not (is_one_each and np.all((weights >= 0.0) & np.isfinite(weights)) and np.any(weights)):
        raise ValueError(
            f"sample_weight is {short_repr(sample_weight)}; it must be a number for each of the "
            f"{num_rows} rows of arrays (X, Y): a positive one, or zero to leave the row out."
        )
    return np.asarray(weights, default_float())


def of_labels(
    data: Any, validation_data: Any, likelihood: Likelihood | None, names: Any = None
) -> tuple[Any, Any, Likelihood | None, Array | None]:
    """Return data with labels as class indices, their likelihood, and the classes.

    Data without labels are returned as they are, and so are data in blocks, of which booleans are
    labels: they are 0 and 1 where they are read.

    :param names: all classes, in any order, if the data may lack some.
    """
    if _is_pair(data):
        classes = labels.classes_of(data[1], likelihood, names)
    else:
        classes = labels.classes_of([False, True], likelihood) if are_booleans(data) else None
    if classes is None:
        return data, validation_data, likelihood, None
    if not labels.are_labels(likelihood):
        likelihood = labels.likelihood_of(classes)
    if _is_pair(data):
        data = data[0], labels.encoded("Y", data[1], classes)
    if _is_pair(validation_data):
        X, Y = validation_data
        validation_data = X, labels.encoded("validation_data[1]", Y, classes)
    return data, validation_data, likelihood, classes


def from_one_hot(data: Any) -> Any:
    """Return data with labels 0, 1, ... for a one-hot code [N, K]; other data as they are."""
    if not (_is_pair(data) and labels.are_one_hot(np.asarray(data[1]))):
        return data
    return data[0], np.argmax(data[1], axis=1)


def is_of_one_column(data: Any) -> bool:
    """Return True if data are a pair (X, Y) with one observation in each row."""
    shape = np.shape(data[1]) if _is_pair(data) else ()
    return len(shape) == 1 or shape[1:] == (1,)


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2


def _arrays(
    name: str, names: tuple[str, str], data: RegressionData, likelihood: Likelihood | None
) -> Rows:
    """Return inputs and outputs as arrays of the default float; a vector Y is one column."""
    X, Y = Data.of(data, likelihood, name=name, names=names)
    return np.asarray(X), np.asarray(Y, dtype=default_float())


def sifted(X: Array, Y: Array, numbers: Array) -> tuple[Array, dict[str, int]]:
    """Return the rows of real-valued Y to learn from, and what was found.

    Copies of a row count once; gross values not at all, with a warning.

    :param numbers: what to call the rows in it: [N].
    """
    repeated, kept = repeats(X, Y)
    gross = gross_rows(Y[kept])
    notes = {"repeated": repeated} if repeated else {}
    if len(kept) < len(X):
        notes["copies"] = len(X) - len(kept)
    if len(gross):
        rows, values = kept[gross], Y[kept[gross]]
        warnings.warn(
            f"Y has {len(gross)} value{'s' * (len(gross) > 1)} more than {GROSS_RATIO:g} times as "
            f"far from the median as 99 of 100 others, first {values[0].max():.6g} in row "
            f"{numbers[rows[0]]}. Such rows are left out: check them. loss='robust' finds less "
            "extreme outliers, too.",
            NumericsWarning,
            stacklevel=5,
        )
        notes["gross"] = len(gross)
        kept = np.delete(kept, gross)
    return kept, notes


def _units_of_pixels(X: Array) -> Scaling:
    """Return the map that takes all pixels together to standard units, the same for each."""
    units, shape = Scaling.of(X.reshape(-1)), X.shape[1:]
    return Scaling(np.full(shape, units.shift), np.full(shape, units.scale))


def _as_rows(X: Array, settings: Settings) -> Array:
    """Return images as rows of pixels, unless their shape is declared."""
    return X.reshape(len(X), -1) if settings.input_shape is None else X


def require_variation(Y: Array, *, scaled: bool = True) -> None:
    """Raise if Y has one row, or a column, in which values may be missing, no scale for errors.

    :param scaled: whether Y are to have one.
    """
    if len(Y) == 1:
        raise ValueError("Y has one row, of which nothing can be learned: give at least two.")
    if not scaled:
        return
    units = Scaling.of(Y)
    constant = np.flatnonzero(np.nanstd(units.scaled(Y), axis=0) < 0.5)
    if len(constant):
        values = Y[:, constant[0]]
        raise ValueError(
            f"Y is constant in column {constant[0]} (it is {values[~np.isnan(values)][0]}): there "
            "is nothing to learn, and no scale for errors. Leave such columns out."
        )


def _shuffled(Y: Array, settings: Settings) -> Array:
    """Return rows in random order, in which each class is spread evenly over all places.

    Any part of successive rows then has the shares of the classes that all rows have.
    """
    order = np.random.default_rng(settings.seed).permutation(len(Y))
    if not settings.of_classes or Y.shape[1] > 1:
        return order
    place = np.empty(len(order))
    for label in np.unique(Y):
        members = np.flatnonzero(Y[order, 0] == label)
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return order[np.argsort(place, kind="stable")]


def hold_out(
    name: str, settings: Settings, rows: Array, groups: Array | None = None
) -> tuple[Array, Array]:
    """Return the rows in two parts, the second of which has the given fraction, or is empty.

    :param groups: the group of each of all rows, which is in one of the parts as a whole: [N].
    """
    fraction = settings.held_out if name == "validation_fraction" else settings.calibration_fraction
    checks.fraction(name, fraction)
    count = max(round(fraction * len(rows)), MIN_VALIDATION_POINTS) if fraction else 0
    most = len(rows) // 3
    if count > most:
        at_most = f"; it may be {most / len(rows):.2g} here" * (most >= MIN_VALIDATION_POINTS)
        warnings.warn(
            f"{name}={fraction:.6g}: {len(rows)} rows are too few to hold out {count}, where a "
            f"third is the most{at_most}. So none are, and predictions are neither stopped, "
            "tempered nor calibrated by unseen data.",
            NumericsWarning,
            stacklevel=5,
        )
        count = 0
    if count and groups is not None:
        rows, count = _at_boundary(rows, groups[rows], count, most)
    return rows[: len(rows) - count], rows[len(rows) - count :]


def _at_boundary(rows: Array, groups: Array, count: int, most: int) -> tuple[Array, int]:
    """Return rows with those of a group side by side, and the nearest count between two groups.

    If there is none up to `most` the count stays, and a group is in both parts.
    """
    _, first, of = np.unique(groups, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return rows, count
    order = np.argsort(first[of.reshape(-1)], kind="stable")
    starts = len(rows) - 1 - np.flatnonzero(np.diff(groups[order]))  # counts of what follows
    starts = starts[(starts >= MIN_VALIDATION_POINTS) & (starts <= most)]
    if len(starts):
        count = int(starts[np.argmin(np.abs(starts - count))])
    return rows[order], count

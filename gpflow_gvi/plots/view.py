"""What displays need to know of an estimator: the model in original units, and names."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy import stats

from .. import likelihoods
from .._core import checks
from ..learning import Learned, Scaling
from ..prediction import by_blocks, finite_rows, require_of


@dataclasses.dataclass(frozen=True)
class View:
    """A fitted model with the names of its columns, and one of its outputs."""

    learned: Learned
    output: int
    """The number of the output that is shown."""
    names: list[str]
    """The names of the features."""
    target: str
    """The name of the output."""
    classes: AnyNDArray | None
    """The labels, if they are classes."""
    groups: dict[str, list[int]]
    """The features that belong together, as the indicators of a category do, by a name."""
    feature_names_in_: tuple[str, ...] | None = None
    """The names that the columns had, if any: a table of other ones is refused."""

    @classmethod
    def of(cls, estimator: Any, output: int = 0) -> View:
        """Return the view of a `Learned`, or of an estimator that keeps one as `learned_`.

        :param output: which of several outputs is shown.
        """
        learned = getattr(estimator, "learned_", estimator)
        if not isinstance(learned, Learned):
            raise TypeError(
                f"estimator is a {type(estimator).__name__}"
                + (" that has learned nothing" if learned is None else "")
                + "; give what learn returns, or a fitted GVIRegressor or GVIClassifier."
            )
        shape = learned.inputs.input_shape
        if len(shape) != 1:
            raise ValueError("the inputs are images; there are pictures of rows [N, D] only.")
        D, J = shape[0], learned.outputs.input_shape[0]
        default = ["x"] if D == 1 else [f"x{d}" for d in range(D)]
        given = getattr(estimator, "feature_names_in_", None)
        names = [str(name) for name in (default if given is None else given)]
        classes = None
        if (count := likelihoods.num_classes(learned.likelihood)) is not None:
            classes = np.asarray(getattr(estimator, "classes_", range(count)))
        elif not 0 <= output < J:
            raise ValueError(f"output is {output}; there are {J}, from 0 on.")
        target = f"y{output}" if J > 1 and classes is None else "y"
        return cls(
            learned,
            output,
            names,
            getattr(estimator, "target", target),
            classes,
            getattr(estimator, "feature_groups_", {name: [d] for d, name in enumerate(names)}),
            None if given is None else tuple(names),
        )

    @property
    def shows_f(self) -> bool:
        """Whether f is in the units of y; else, as of counts, the mean of y is shown."""
        return likelihoods.has_scale(self.learned.likelihood)

    @property
    def is_of_network(self) -> bool:
        """Whether P is around a network, so that inducing points have no original units."""
        return not isinstance(self.learned.inputs, Scaling)

    def rows(self, X: Any, max_rows: int | None = None) -> AnyNDArray:
        """Return rows X, [N, D], or where none are given the inducing points, in original units.

        :param max_rows: the number of rows that are drawn at random from more.
        """
        if X is None:
            units = self.learned.inputs
            if not isinstance(units, Scaling):
                raise ValueError("P is around a network, so that X is needed: give rows [N, D].")
            X = units.original(self.learned.regulariser.inducing_points)
        require_of(self, X)
        X = np.asarray(finite_rows("X", X), dtype=float)
        if X.ndim != 2 or X.shape[1] != len(self.names):
            raise ValueError(
                f"X has shape {X.shape}; it must be [N, {len(self.names)}], as the rows learned "
                "from."
            )
        if max_rows is None or len(X) <= max_rows:
            return X
        return X[np.random.default_rng(0).choice(len(X), max_rows, replace=False)]

    def moments(self, rows: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Return mean and standard deviation at rows, of f or where it `shows_f` not of y: [N]."""
        predict = self.learned.predict_f if self.shows_f else self.learned.predict_y
        mean, variance = (part[:, self.output] for part in by_blocks(predict, rows))
        return mean, np.sqrt(variance)

    def observed(self, y: Any, rows: AnyNDArray) -> AnyNDArray:
        """Return observations at rows, [N, J]; the numbers of their classes, [N, 1], for labels."""
        if self.classes is not None:
            columns = likelihoods.encoded("y", y, self.classes)[:, None]
        else:
            y, (J,) = np.asarray(y, dtype=float), self.learned.outputs.input_shape
            columns = y[:, None] if y.ndim == 1 else y
            if columns.shape[1:] != (J,):
                raise ValueError(
                    f"y has shape {y.shape}; it must be [N, {J}], a column for each output, as the "
                    "observations learned from."
                )
        if len(columns) != len(rows):
            raise ValueError(
                f"X has {len(rows)} rows and y has {len(columns)}; they must be equal."
            )
        return columns

    def numbers(self, y: Any, rows: AnyNDArray) -> AnyNDArray:
        """Return the output of observations y at rows: [N]; the number of its class for a label."""
        return self.observed(y, rows)[:, 0 if self.classes is not None else self.output]


def grid(rows: AnyNDArray, margin: float, resolution: int) -> AnyNDArray:
    """Return values of each feature, ascending and equally far apart: [resolution, D].

    :param rows: those whose range is covered, [N, D].
    :param margin: how far to go beyond them, as a part of their range.
    :param resolution: the number of values.
    """
    low, high = rows.min(axis=0), rows.max(axis=0)
    beyond = margin * (high - low)
    return np.linspace(low - beyond, high + beyond, resolution)


def predicted(**parts: Any) -> list[AnyNDArray]:
    """Return values and their predicted `mean` and `sd` as vectors of the length of the first.

    Any may be one number for all rows.
    """
    vectors = {name: np.ravel(np.asarray(part, dtype=float)) for name, part in parts.items()}
    first, N = next((name, len(vector)) for name, vector in vectors.items())
    for name, vector in vectors.items():
        if len(vector) not in (1, N):
            raise ValueError(
                f"{name} has shape {np.shape(parts[name])}, but {first} has {N} values; they must "
                "be as many, of one output."
            )
    if np.any(vectors["sd"] < 0.0):
        raise ValueError(f"sd is {vectors['sd'].min():g} in places; it must be zero or positive.")
    return [np.broadcast_to(vector, N) for vector in vectors.values()]


def deviations(coverage: float) -> float:
    """Return half the width of a central interval of a Gaussian, in standard deviations."""
    checks.coverage(coverage)
    return float(stats.norm.ppf(0.5 + 0.5 * coverage))

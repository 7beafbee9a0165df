"""Whether predicted probabilities are those observed, for quantiles and for classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy import stats

from .. import likelihoods
from ..metrics.classes import Reliability, Selective, auroc, ece, reliability, selective
from .display import BLUE, ORANGE, Display, legend_above
from .view import View, predicted

LEVELS = np.arange(1, 40) / 40.0
"""The probabilities whose quantiles are compared."""

NUM_BINS = 10
"""The number of bins of the confidence."""

NUM_BINS_OF_SCORES = 40


@dataclasses.dataclass
class QuantileDisplay(Display):
    """The fraction of observations below the predicted p-quantile, for each p.

    It is p for calibrated predictions (Kuleshov, Fenner and Ermon 2018, "Accurate uncertainties for
    deep learning using calibrated regression"), up to the binomial variation of N observations: 95
    of 100 fractions lie in the grey band then.
    """

    observed: AnyNDArray
    """The fractions at `LEVELS`: [Q]."""
    num_observations: int

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, output: int = 0, ax: Any = None
    ) -> QuantileDisplay:
        """Draw the quantiles that an estimator predicts.

        :param X: rows that it has not seen: [N, D].
        :param y: the observations there: [N] or [N, J].
        """
        view = View.of(estimator, output)
        if view.classes is not None:
            raise ValueError("estimator predicts classes; use ReliabilityDisplay.")
        return cls._drawn(view.learned.pit(view.rows(X), y)[:, output], ax)

    @classmethod
    def from_predictions(cls, y: Any, mean: Any, sd: Any, *, ax: Any = None) -> QuantileDisplay:
        """Draw the quantiles of Gaussian predictions of any model.

        :param y: the observations: [N].
        :param mean: their predicted means: [N].
        :param sd: their predicted standard deviations, with the noise: [N].
        """
        y, mean, sd = predicted(y=y, mean=mean, sd=sd)
        with np.errstate(divide="ignore", invalid="ignore"):  # a deviation may be zero
            u = stats.norm.cdf((y - mean) / sd)
        if np.any(np.isnan(u)):
            raise ValueError(
                f"y, mean or sd is NaN in {np.sum(np.isnan(u))} of {len(u)} rows, or sd is 0 where "
                "y is the mean. Leave these rows out."
            )
        return cls._drawn(u, ax)

    @classmethod
    def _drawn(cls, u: AnyNDArray, ax: Any) -> QuantileDisplay:
        """Draw probability integral transforms u: [N]."""
        return cls(np.mean(u <= LEVELS[:, None], axis=1), len(u)).plot(ax)

    def _draw(self, axes: AnyNDArray) -> None:
        (ax,) = axes
        N = self.num_observations
        ends = (stats.binom.ppf(end, N, LEVELS) / N for end in (0.025, 0.975))
        ax.fill_between(LEVELS, *ends, color="0.85", lw=0, label="calibrated, 95 %")
        ax.plot([0.0, 1.0], [0.0, 1.0], ":", color="0.4")
        off = np.mean(np.abs(self.observed - LEVELS))
        label = f"observed, off by {off:.3f} on average"
        ax.plot(LEVELS, self.observed, ".-", color=BLUE, label=label)
        ax.set(xlabel="predicted probability p", ylabel="fraction of y below the p-quantile")
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
        legend_above(ax, ncols=2)


@dataclasses.dataclass
class ReliabilityDisplay(Display):
    """The accuracy of predicted classes by their confidence, the largest probability."""

    bins: Reliability
    ece: float
    """The expected calibration error."""

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: Any = None
    ) -> ReliabilityDisplay:
        """Draw the reliability of a classifier.

        :param X: rows that it has not seen: [N, D].
        :param y: the labels there: [N].
        """
        view = View.of(estimator)
        if view.classes is None:
            raise ValueError("estimator predicts numbers; use QuantileDisplay.")
        rows = view.rows(X)
        p = view.learned.predict_proba(rows)
        return cls.from_predictions(view.numbers(y, rows), p, ax=ax)

    @classmethod
    def from_predictions(cls, y: Any, probabilities: Any, *, ax: Any = None) -> ReliabilityDisplay:
        """Draw the reliability of probabilities of any model.

        :param y: the labels 0, 1, ...: [N].
        :param probabilities: the probabilities of the classes, [N, J].
        """
        return cls.of(y, probabilities).plot(ax)

    @classmethod
    def of(cls, y: Any, probabilities: Any) -> ReliabilityDisplay:
        """Return the display of probabilities, which is not drawn yet."""
        of_bins = reliability(y, probabilities, bins=NUM_BINS)
        return cls(of_bins, ece(y, probabilities, bins=NUM_BINS))

    def _draw(self, axes: AnyNDArray) -> None:
        (ax,) = axes
        at, found, n = self.bins
        error = 1.96 * np.sqrt(at * (1.0 - at) / n)
        ax.plot([0.0, 1.0], [0.0, 1.0], ":", color="0.4")
        band = {"fmt": "none", "ecolor": "0.75", "elinewidth": 6}
        ax.errorbar(at, at, error, label="calibrated, 95 %", **band)
        ax.plot(at, found, "-", color=BLUE, lw=1)
        size = 15.0 + 150.0 * n / n.max()
        ax.scatter(at, found, size, color=BLUE, zorder=3, label=f"observed, ECE {self.ece:.3f}")
        ax.set(xlabel="confidence", ylabel="accuracy")
        low = max(0.0, min(at.min(), found.min()) - 0.1)
        ax.set(xlim=(low, 1.03), ylim=(low, 1.03))
        legend_above(ax, ncols=2)


@dataclasses.dataclass
class ClassesDisplay(Display):
    """Reliability, the error rate of the most certain rows, and inputs of another kind.

    The error rate is that of the rows that are kept, for each fraction of them. The last panel is
    there if there are inputs of another kind: how unlike the data these are, and how unlike them
    new rows of the same kind are.
    """

    reliability: ReliabilityDisplay
    curve: Selective
    scores: tuple[AnyNDArray, AnyNDArray] | None = None
    """How little is known of new rows, and of inputs of another kind."""

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, outside: Any = None, ax: Any = None
    ) -> ClassesDisplay:
        """Draw a classifier: of a table, of images, or around a network.

        :param X: rows or images that it has not seen: [N, D...].
        :param y: the labels there: [N].
        :param outside: inputs of another kind: [N2, D...].
        """
        learned = getattr(estimator, "learned_", estimator)
        p = learned.predict_proba(X)
        classes = getattr(estimator, "classes_", None)
        y = likelihoods.encoded("y", y, np.arange(p.shape[1]) if classes is None else classes)
        scores = None if outside is None else (learned.score_ood(X), learned.score_ood(outside))
        return cls.from_predictions(y, p, scores=scores, ax=ax)

    @classmethod
    def from_predictions(
        cls, y: Any, probabilities: Any, *, scores: tuple[Any, Any] | None = None, ax: Any = None
    ) -> ClassesDisplay:
        """Draw probabilities of any model.

        :param y: the labels 0, 1, ...: [N].
        :param probabilities: the probabilities of the classes, [N, J].
        :param scores: how unlike the data these rows are, [N], and inputs of another kind, [N2].
        """
        bins = ReliabilityDisplay.of(y, probabilities)
        both = None if scores is None else (np.asarray(scores[0]), np.asarray(scores[1]))
        return cls(bins, selective(y, probabilities), both).plot(ax)

    @property
    def num_panels(self) -> int:
        """The number of Axes that are drawn on."""
        return 2 if self.scores is None else 3

    def _draw(self, axes: AnyNDArray) -> None:
        self.reliability.plot(axes[0])
        risk = 1.0 - self.curve.accuracy
        label = f"AURC {1.0 - self.curve.area:.3f}"
        axes[1].plot(self.curve.coverage, risk, color=BLUE, label=label)
        axes[1].set(xlabel="fraction of rows kept, the most certain", ylabel="error rate")
        axes[1].set(xlim=(0.0, 1.0), ylim=(0.0, None))
        legend_above(axes[1])
        if self.scores is None:
            return
        positive = [np.log10(np.maximum(part, np.finfo(float).tiny)) for part in self.scores]
        bins = np.histogram_bin_edges(np.concatenate(positive), NUM_BINS_OF_SCORES)
        found = f"another kind, AUROC {auroc(*self.scores):.3f}"
        for part, colour, name in zip(positive, (BLUE, ORANGE), ("new", found), strict=True):
            axes[2].hist(part, bins, density=True, color=colour, alpha=0.6, label=name)
        axes[2].set(xlabel="log₁₀ of how little is known", ylabel="density")
        legend_above(axes[2], ncols=2)

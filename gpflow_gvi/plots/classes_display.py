"""How far predicted classes are to be trusted, in one picture."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .. import likelihoods
from ..metrics.classes import Selective, auroc, selective
from .display import BLUE, ORANGE, Display, legend_above
from .reliability import ReliabilityDisplay

NUM_BINS = 40


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
        bins = np.histogram_bin_edges(np.concatenate(positive), NUM_BINS)
        found = f"another kind, AUROC {auroc(*self.scores):.3f}"
        for part, colour, name in zip(positive, (BLUE, ORANGE), ("new", found), strict=True):
            axes[2].hist(part, bins, density=True, color=colour, alpha=0.6, label=name)
        axes[2].set(xlabel="log₁₀ of how little is known", ylabel="density")
        legend_above(axes[2], ncols=2)

"""The training curves of a model, and the candidates for its regulariser."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpflow.base import AnyNDArray

from .display import BLUE, VERMILLION, Display
from .estimators import View


@dataclasses.dataclass
class HistoryDisplay(Display):
    """The loss, its terms and the held-out density, epoch by epoch: a panel for each."""

    history: dict[str, list[float]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> HistoryDisplay:
        """Draw how Q was trained.

        :param estimator: what `learn` returns, or a fitted estimator.
        :param ax: as many Axes as there are curves, or one to put them in.
        """
        return cls.from_history(View.of(estimator).learned.history, ax=ax)

    @classmethod
    def from_history(cls, history: Any, *, ax: Any = None) -> HistoryDisplay:
        """Draw a history, such as `model.fit(...)` of Keras or of this package returns."""
        history = dict(getattr(history, "history", history))
        if not history:
            raise ValueError(
                "the history is empty: Q was not trained. Pass epochs=20 or a network to learn, or "
                "draw what was compared instead by CandidatesDisplay."
            )
        return cls(history).plot(ax)

    @property
    def num_panels(self) -> int:
        """One for each curve."""
        return len(self.history)

    def _draw(self, axes: AnyNDArray) -> None:
        for ax, (name, values) in zip(axes, self.history.items(), strict=True):
            ax.plot(range(1, len(values) + 1), values, ".-", color=BLUE)
            ax.set(xlabel="epoch", ylabel=name)
            ax.xaxis.get_major_locator().set_params(integer=True)


@dataclasses.dataclass
class CandidatesDisplay(Display):
    """The candidates for P by the negative log density of rows that they have not seen."""

    scores: list[tuple[str, float, bool]]
    """Name, score, and whether it was taken; the best first."""

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> CandidatesDisplay:
        """Draw what was compared.

        :param estimator: what `learn` returns, or a fitted estimator.
        :param ax: Axes to draw on.
        """
        summary = View.of(estimator).learned.summary()
        if not summary.candidates:
            raise ValueError(
                "nothing was compared and Q was not trained, so that there is no history to draw."
            )
        stages, score = summary.candidates, "nll"
        if summary.judged:
            stages, score = summary.judged, "nll_unseen"
        return cls(
            [
                (stage.what[3:], float(stage.facts[score]), stage in summary.taken)
                for stage in stages
            ]
        ).plot(ax)

    def _draw(self, axes: AnyNDArray) -> None:
        (ax,) = axes
        for row, (_, nll, taken) in enumerate(self.scores):
            ax.plot(nll, -row, "o", color=VERMILLION if taken else BLUE)
        names = [name for name, _, _ in self.scores]
        ax.set_yticks(range(0, -len(names), -1), names, fontsize="small")
        ax.set(xlabel="NLL of a row that was not seen", ylim=(-len(names), 1))
        ax.ticklabel_format(axis="x", useOffset=False)
        best, worst = self.scores[0][1], self.scores[-1][1]
        ax.set_xlim(best - 0.1 * (worst - best) - 0.02, worst + 0.1 * (worst - best) + 0.02)

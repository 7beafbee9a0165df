"""Scores of a model on rows that it has not seen, and a verdict in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy import stats
from sklearn.metrics import r2_score

from .. import metrics
from ..prediction import by_blocks
from .model import TableModel

if TYPE_CHECKING:
    import pandas as pd

COVERAGE = 0.9
"""That of the intervals that are scored."""


class Scores(NamedTuple):
    """Scores, and what they mean."""

    table: dict[str, tuple[float, float]]
    """Those of the model, and those of a prediction from the targets alone, without inputs."""
    verdict: str
    calibration: str
    """Whether probabilities are what they say, up to what chance allows."""
    is_useless: bool
    """Whether a prediction without inputs is better."""
    predicted: tuple[AnyNDArray, ...]
    """`TableModel.numbers` of these rows, or the probabilities of classes."""

    @classmethod
    def of(cls, model: TableModel, table: pd.DataFrame, y: AnyNDArray, seen: AnyNDArray) -> Scores:
        """Return the scores of rows with targets y, by a model that learned from targets `seen`."""
        X = model.inputs(table)
        found = _of_numbers if model.classes_ is None else _of_classes
        scores, gains, said, calibration, predicted = found(model, X, y, seen)
        worth, error = float(np.mean(gains)), float(np.std(gains) / np.sqrt(len(gains)))
        if worth <= 0.0:
            said += " Worse than no inputs: do not use it."
        elif worth < 2.0 * error:
            said += " On so few rows this may be chance: no inputs may do as well."
        return cls(scores, said, calibration, worth <= 0.0, predicted)

    def __str__(self) -> str:
        """Return the verdict and the scores, as text."""
        lines = [self.verdict, self.calibration, "", f"{'':<24}{'model':>10}{'no inputs':>12}"]
        lines += [f"{n:<24}{own:>10.4g}{base:>12.4g}" for n, (own, base) in self.table.items()]
        return "\n".join(lines)


_Found = tuple[dict[str, tuple[float, float]], AnyNDArray, str, str, tuple[AnyNDArray, ...]]


def _of_numbers(model: TableModel, X: AnyNDArray, y: AnyNDArray, seen: AnyNDArray) -> _Found:
    """Return scores, gains of log density over no inputs, [N], sentences and predictions."""
    learned, Y, N = model.learned_, y[:, None], len(y)
    predicted = model.numbers(X, COVERAGE)
    mean, _, lower, upper = (part[:, None] for part in predicted)
    (logs,) = by_blocks(lambda *part: (learned.predict_log_density(part),), X, Y)
    center, sd = np.full_like(Y, seen.mean()), float(np.std(seen))
    half = stats.norm.ppf(0.5 + 0.5 * COVERAGE) * sd
    percent = f"{100 * COVERAGE:.0f} %"
    held = metrics.coverage(Y, lower, upper)
    explained = r2_score(y, mean[:, 0])
    table = {
        "R²": (explained, r2_score(y, center[:, 0])),
        "mae": (metrics.mae(Y, mean), metrics.mae(Y, center)),
        "rmse": (metrics.rmse(Y, mean), metrics.rmse(Y, center)),
        "nll": (-float(np.mean(logs)), metrics.nll(Y, center, np.full_like(Y, sd**2))),
        f"coverage of {percent}": (held, metrics.coverage(Y, center - half, center + half)),
        "width of these": (metrics.width(lower, upper), 2.0 * half),
    }
    share = f"{100 * explained:.0f} %" if explained > 0.0 else "nothing"
    said = (
        f"It explains {share} of the variance of {model.target} in {N:,} rows that it had not "
        f"seen; its {percent} intervals held {100 * held:.0f} % of them."
    )
    low, high = (stats.binom.ppf(end, N, COVERAGE) / N for end in (0.025, 0.975))
    fits = f"calibrated as far as {N:,} rows tell"
    kind = "too narrow" if held < low else "too wide" if held > high else fits
    allowed = f"chance allows {100 * low:.0f} to {100 * high:.0f} %"
    gains = logs - stats.norm.logpdf(y, center[:, 0], sd)
    return table, gains, said, f"Its intervals are {kind}: {allowed}.", predicted


def _of_classes(model: TableModel, X: AnyNDArray, y: AnyNDArray, seen: AnyNDArray) -> _Found:
    """Return scores, gains of log probability over no inputs, [N], sentences, predictions.

    Classes that were not learned have probability zero.
    """
    own_classes, N = np.asarray(model.classes_), len(y)
    classes = np.union1d(own_classes, y)
    labels, learned = np.searchsorted(classes, y), np.isin(classes, own_classes)
    shares, p = np.mean(seen[:, None] == classes, axis=0), np.zeros((N, len(classes)))
    p[:, learned] = model.learned_.predict_proba(X)
    base = np.broadcast_to(shares, p.shape)
    own, without = (metrics.evaluate_probabilities(labels, each) for each in (p, base))
    table = {name: (own[name], without[name]) for name in ("accuracy", "nll", "brier", "ece")}
    right, always = table["accuracy"]
    said = (
        f"It predicts {model.target} rightly in {100 * right:.0f} % of {N:,} rows that it had not "
        f"seen; the most frequent class is right in {100 * always:.0f} %."
    )
    if not np.all(learned):
        absent = ", ".join(map(str, classes[~learned]))
        said += f" No row that it learned from is {absent}, as {np.sum(~learned[labels])} are."
    best = p.max(axis=1)
    off, chance = right - best.mean(), 1.96 * np.sqrt(np.sum(best * (1.0 - best))) / N
    fits = f"calibrated as far as {N:,} rows tell"
    kind = fits if abs(off) <= chance else "too sure" if off < 0.0 else "not sure enough"
    calibration = (
        f"Its probabilities are {kind}: it expected to be right in {100 * best.mean():.0f} %, and "
        f"chance allows {100 * chance:.0f} % more or less."
    )
    rows = np.arange(N)
    tiny = np.finfo(float).tiny
    mine, theirs = (np.log(np.maximum(each[rows, labels], tiny)) for each in (p, base))
    return table, mine - theirs, said, calibration, (p,)

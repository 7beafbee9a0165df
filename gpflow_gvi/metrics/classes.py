"""Metrics of predicted classes: functions of labels [N] or [N, 1] and probabilities [N, J]."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray, TensorType
from scipy.stats import mannwhitneyu

from .._core import checks, labels
from ..prediction.class_probabilities import class_probabilities


class Metric(NamedTuple):
    """The name of a metric of predictions, with its orientation."""

    name: str
    orientation: Literal["lower", "higher", "target"]
    """Whether lower or higher values are better, or those close to a nominal value."""


def accuracy(Y: TensorType, probabilities: TensorType) -> float:
    """Return the fraction of labels that have the largest probability."""
    return float(np.mean(_is_correct(*_arrays(Y, probabilities))))


def cross_entropy(Y: TensorType, probabilities: TensorType) -> float:
    """Return the mean of -log p(y), the negative log likelihood of the labels."""
    Y, p = _arrays(Y, probabilities)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(len(Y)), Y])))


def brier(Y: TensorType, probabilities: TensorType) -> float:
    """Return the mean of Σ_j (p_j - 1{y = j})² (Brier 1950), between 0 and 2."""
    Y, p = _arrays(Y, probabilities)
    return float(np.mean(np.sum(np.square(p - np.eye(p.shape[1])[Y]), axis=1)))


class Reliability(NamedTuple):
    """A reliability diagram: confidence and accuracy of each bin that is not empty."""

    confidence: AnyNDArray
    """The mean of the largest probability, [B]."""
    accuracy: AnyNDArray
    """The fraction of correct predictions, [B]."""
    count: AnyNDArray
    """The number of predictions, [B]."""


def reliability(Y: TensorType, probabilities: TensorType, *, bins: int = 15) -> Reliability:
    """Return the accuracy of predictions by their confidence, in bins of equal width."""
    checks.count("bins", bins)
    Y, p = _arrays(Y, probabilities)
    return _binned(p.max(axis=1), _is_correct(Y, p), bins)


def _binned(confidence: AnyNDArray, correct: AnyNDArray, bins: int) -> Reliability:
    bin_of = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    full = count > 0

    def mean(values: AnyNDArray) -> AnyNDArray:
        return np.bincount(bin_of, values, bins)[full] / count[full]

    return Reliability(mean(confidence), mean(correct), count[full])


def _gap(of_bins: Reliability) -> float:
    return float(np.average(np.abs(of_bins.confidence - of_bins.accuracy), weights=of_bins.count))


def ece(Y: TensorType, probabilities: TensorType, *, bins: int = 15) -> float:
    """Return the expected calibration error, the mean difference of confidence and accuracy.

    Bins are weighted by their numbers of predictions (Guo, Pleiss, Sun and Weinberger 2017, eq. 3).
    """
    return _gap(reliability(Y, probabilities, bins=bins))


def adaptive_ece(Y: TensorType, probabilities: TensorType, *, bins: int = 15) -> float:
    """Return the calibration error in bins that hold equally many predictions.

    Confident networks leave most bins of equal width nearly empty (Nixon, Dusenberry, Zhang, Jerfel
    and Tran 2019, "Measuring calibration in deep learning", where it is of each class).
    """
    checks.count("bins", bins)
    Y, p = _arrays(Y, probabilities)
    confidence = p.max(axis=1)
    gaps = confidence - _is_correct(Y, p)
    parts = np.array_split(gaps[np.argsort(confidence, kind="stable")], min(bins, len(Y)))
    return float(sum(abs(part.sum()) for part in parts) / len(Y))


def classwise_ece(Y: TensorType, probabilities: TensorType, *, bins: int = 15) -> float:
    """Return the calibration error of the probability of each class, averaged over classes.

    Kull, Perello-Nieto, Kängsepp, Silva Filho, Song and Flach (2019), "Beyond temperature scaling",
    eq. 3.
    """
    checks.count("bins", bins)
    Y, p = _arrays(Y, probabilities)
    return float(np.mean([_gap(_binned(p[:, j], j == Y, bins)) for j in range(p.shape[1])]))


class Selective(NamedTuple):
    """Selective prediction: the least certain rows are omitted, one after the other."""

    coverage: AnyNDArray
    """The fraction of rows that is kept, ascending, [N]."""
    accuracy: AnyNDArray
    """The accuracy on these rows, [N]."""

    @property
    def area(self) -> float:
        """The mean accuracy over all coverages; higher is better."""
        return float(np.mean(self.accuracy))


def selective(
    Y: TensorType, probabilities: TensorType, uncertainty: TensorType | None = None
) -> Selective:
    """Return the accuracy on the most certain rows, for each number of them.

    :param uncertainty: rows are omitted in its order, [N]; by default 1 minus the largest
        probability.
    """
    Y, p = _arrays(Y, probabilities)
    by = 1.0 - p.max(axis=1) if uncertainty is None else np.asarray(uncertainty, dtype=float)
    if by.shape != Y.shape or np.any(np.isnan(by)):
        raise ValueError(f"uncertainty has shape {by.shape} or NaN; it must be {len(Y)} numbers.")
    kept = np.arange(1, len(Y) + 1)
    order = np.argsort(by, kind="stable")
    return Selective(kept / len(Y), np.cumsum(_is_correct(Y, p)[order]) / kept)


def aurc(Y: TensorType, probabilities: TensorType) -> float:
    """Return the area under the risk-coverage curve; lower is better.

    The error rate among the k rows with the largest probabilities, averaged over k (Geifman, Uziel
    and El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers").
    """
    return 1.0 - selective(Y, probabilities).area


def augrc(Y: TensorType, probabilities: TensorType) -> float:
    """Return the area under the generalised risk-coverage curve, from 0 to ½; lower is better.

    The probability that a row is both accepted and wrong, averaged over coverages. `aurc` weights
    the errors of the most certain rows too much (Traub, Bungert, Lüth, Baumgartner, Maier-Hein,
    Maier-Hein and Jaeger 2024, "Overcoming common flaws in the evaluation of selective
    classification systems").
    """
    risk = _accepted_and_wrong(selective(Y, probabilities))
    return float(np.mean(0.5 * (risk + np.concatenate([[0.0], risk[:-1]]))))


def coverage_at_risk(curve: Selective, risk: float = 0.05) -> float:
    """Return the largest fraction of rows that can be kept with an error rate of at most `risk`."""
    checks.fraction("risk", risk)
    within = np.flatnonzero(_accepted_and_wrong(curve) <= risk * curve.coverage * (1.0 + 1e-12))
    return float(curve.coverage[within[-1]]) if len(within) else 0.0


def risk_at_coverage(curve: Selective, coverage: float = 0.8) -> float:
    """Return the error rate of that fraction of the rows which is most certain."""
    checks.coverage(coverage)
    kept = math.ceil(coverage * len(curve.coverage) * (1.0 - 1e-12))
    return float(1.0 - curve.accuracy[kept - 1])


def _accepted_and_wrong(curve: Selective) -> AnyNDArray:
    """Return the fraction of all rows that is kept and wrong, for each number that is kept: [N]."""
    return np.asarray(curve.coverage * (1.0 - curve.accuracy))


def auroc(negative: TensorType, positive: TensorType) -> float:
    """Return the probability that a score of the second kind exceeds one of the first.

    The area under the receiver operating characteristic; ties count half. For uncertainties at
    in-distribution and at out-of-distribution inputs it measures their detection: 1 is best.

    :param negative: scores of the first kind, [N].
    :param positive: scores of the second kind, [N2].
    """
    low, high = _two_kinds(negative, positive)
    above = mannwhitneyu(high, low, method="asymptotic").statistic
    return float(above / (len(low) * len(high)))


def aupr(negative: TensorType, positive: TensorType) -> float:
    """Return the area under the curve of precision and recall, with the scores of `auroc`."""
    from sklearn.metrics import average_precision_score

    low, high = _two_kinds(negative, positive)
    kinds = np.repeat([0, 1], [len(low), len(high)])
    return float(average_precision_score(kinds, np.concatenate([low, high])))


def fpr_at_tpr(negative: TensorType, positive: TensorType, tpr: float = 0.95) -> float:
    """Return the false positive rate at a given true positive rate.

    The threshold is the largest that a fraction `tpr` of the scores of the second kind reaches. In
    out-of-distribution detection this is FPR95, and 0 is best (Hendrycks and Gimpel 2017).
    """
    low, high = _two_kinds(negative, positive)
    if not 0.0 < tpr <= 1.0:
        raise ValueError(f"tpr is {tpr}; it must be more than 0 and at most 1, as 0.95 is.")
    reached = math.ceil(tpr * len(high) * (1.0 - 1e-12))  # 0.55 · 100 is more than 55
    return float(np.mean(low >= np.sort(high)[len(high) - reached]))


def _two_kinds(negative: TensorType, positive: TensorType) -> list[AnyNDArray]:
    both = [np.asarray(scores, dtype=float).ravel() for scores in (negative, positive)]
    for name, scores in zip(("negative", "positive"), both, strict=True):
        if not len(scores) or np.any(np.isnan(scores)):
            raise ValueError(f"{name} is empty or has NaN; pass numbers, which can be ordered.")
    return both


CLASS_METRICS = {
    name: Metric(name, "higher" if name == "accuracy" else "lower")
    for name in ("nll", "accuracy", "brier", "ece")
}
"""All metrics of `evaluate` for a classifier, by name."""


def evaluate_probabilities(
    Y: TensorType,
    probabilities: TensorType,
    *,
    ood_scores: tuple[TensorType, TensorType] | None = None,
) -> dict[str, float]:
    """Return the measures of `evaluate_classes` of probabilities from anywhere, by name.

    :param Y: class indices, [N].
    :param probabilities: the probability of each class, [N, J].
    :param ood_scores: how unlike the training data these rows are, [N], and how unlike them
        out-of-distribution rows are, [N2], if there are any.
    """
    curve = selective(Y, probabilities)
    results = {
        "nll": cross_entropy(Y, probabilities),
        "accuracy": accuracy(Y, probabilities),
        "brier": brier(Y, probabilities),
        "ece": ece(Y, probabilities),
        "adaptive_ece": adaptive_ece(Y, probabilities),
        "classwise_ece": classwise_ece(Y, probabilities),
        "aurc": aurc(Y, probabilities),
        "augrc": augrc(Y, probabilities),
        "coverage_at_5_percent_risk": coverage_at_risk(curve, 0.05),
        "risk_at_80_percent_coverage": risk_at_coverage(curve, 0.8),
    }
    if ood_scores is None:
        return results
    return results | {
        "ood_auroc": auroc(*ood_scores),
        "ood_aupr": aupr(*ood_scores),
        "ood_fpr95": fpr_at_tpr(*ood_scores, 0.95),
    }


def evaluate_classes(model: Any, data: Any, *, ood: Any = None) -> dict[str, float]:
    """Return the scores of a classifier's predictions, by name.

    `nll`, `accuracy`, `brier`; calibration: `ece`, `adaptive_ece`, `classwise_ece`; rejection of
    the rows with the smallest largest probability: `aurc`, `augrc`, `coverage_at_5_percent_risk`,
    `risk_at_80_percent_coverage`; and with `ood` the detection of these rows: `ood_auroc`,
    `ood_aupr`, `ood_fpr95`, by `score_ood` if the model has it, and else by 1 minus the largest
    probability.

    :param model: anything with `predict_proba`, such as a `Learned` or an estimator of
        scikit-learn; or a model of GPflow with a likelihood of classes.
    :param data: held-out (X, Y), labels as the model was given them.
    :param ood: inputs that are out of distribution, if there are any.
    """
    Y, p = labels_and_probabilities(model, data)
    scores = None if ood is None else (_ood_score(model, data[0]), _ood_score(model, ood))
    return evaluate_probabilities(Y, p, ood_scores=scores)


def _ood_score(model: Any, X: Any) -> AnyNDArray:
    if hasattr(model, "score_ood"):
        return np.asarray(model.score_ood(X))
    return 1.0 - probabilities_of(model, X).max(axis=1)


def probabilities_of(model: Any, X: Any) -> AnyNDArray:
    """Return the probabilities of a classifier, or of a model of GPflow, at X: [N, J]."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if not hasattr(model, "likelihood"):
        raise TypeError(
            f"model is a {type(model).__name__} without predict_proba, and without a likelihood of "
            "classes. Pass its probabilities to evaluate_probabilities."
        )
    return class_probabilities(model, X)


def labels_and_probabilities(model: Any, data: Any) -> tuple[Any, AnyNDArray]:
    """Return labels, as class indices where a model has names, and its probabilities [N, J]."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"data is a {type(data).__name__}; it must be the pair of arrays (X, Y).")
    X, Y = data
    classes, p = getattr(model, "classes_", None), probabilities_of(model, X)
    if classes is not None:
        Y = labels.encoded("Y", Y, np.asarray(classes))
    return Y, p


def _is_correct(Y: AnyNDArray, p: AnyNDArray) -> AnyNDArray:
    return np.asarray(p.argmax(axis=1) == Y, dtype=float)


def _arrays(Y: TensorType, probabilities: TensorType) -> tuple[AnyNDArray, AnyNDArray]:
    """Return labels and probabilities as validated arrays, [N] and [N, J]."""
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2 or len(p) == 0:
        raise ValueError(f"probabilities has shape {p.shape}; it must be [N, J] with J ≥ 2.")
    if not np.all((p >= 0.0) & (np.abs(p.sum(axis=1, keepdims=True) - 1.0) < 1e-3)):
        raise ValueError("probabilities has rows that are negative or do not sum to one.")
    column = labels.validated("labels", Y, p.shape[1])
    if column.shape != (len(p), 1):
        raise ValueError(
            f"labels has shape {column.shape}; it must be [N] or [N, 1], one for each of the "
            f"{len(p)} rows of probabilities."
        )
    return column[:, 0], p

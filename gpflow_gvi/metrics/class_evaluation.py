"""All measures of predicted classes in one call: errors, calibration, rejection and detection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, TensorType

from .._core import checks
from . import classes
from .classes import Selective, selective


def aurc(Y: TensorType, probabilities: TensorType) -> float:
    """Return the area under the risk-coverage curve; lower is better.

    The error rate among the k rows with the largest probabilities, averaged over k (Geifman, Uziel
    and El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers").

    :param Y: the labels.
    :param probabilities: their predicted probabilities.
    """
    return 1.0 - selective(Y, probabilities).area


def augrc(Y: TensorType, probabilities: TensorType) -> float:
    """Return the area under the generalised risk-coverage curve, from 0 to ½; lower is better.

    The probability that a row is both accepted and wrong, averaged over coverages. `aurc` weights
    the errors of the most certain rows too much (Traub, Bungert, Lüth, Baumgartner, Maier-Hein,
    Maier-Hein and Jaeger 2024, "Overcoming common flaws in the evaluation of selective
    classification systems").

    :param Y: the labels.
    :param probabilities: their predicted probabilities.
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
        "nll": classes.cross_entropy(Y, probabilities),
        "accuracy": classes.accuracy(Y, probabilities),
        "brier": classes.brier(Y, probabilities),
        "ece": classes.ece(Y, probabilities),
        "adaptive_ece": classes.adaptive_ece(Y, probabilities),
        "classwise_ece": classes.classwise_ece(Y, probabilities),
        "aurc": aurc(Y, probabilities),
        "augrc": augrc(Y, probabilities),
        "coverage_at_5_percent_risk": coverage_at_risk(curve, 0.05),
        "risk_at_80_percent_coverage": risk_at_coverage(curve, 0.8),
    }
    if ood_scores is None:
        return results
    return results | {
        "ood_auroc": classes.auroc(*ood_scores),
        "ood_aupr": aupr(*ood_scores),
        "ood_fpr95": classes.fpr_at_tpr(*ood_scores, 0.95),
    }


def aupr(negative: TensorType, positive: TensorType) -> float:
    """Return the area under the curve of precision and recall, of scores of the second kind.

    :param negative: scores of the first kind, [N].
    :param positive: scores of the second kind, [N2].
    """
    from sklearn.metrics import average_precision_score

    low, high = (np.asarray(each, dtype=float).ravel() for each in (negative, positive))
    kinds = np.repeat([0, 1], [len(low), len(high)])
    return float(average_precision_score(kinds, np.concatenate([low, high])))


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
    Y, p = classes.labels_and_probabilities(model, data)
    scores = None if ood is None else (_ood_score(model, data[0]), _ood_score(model, ood))
    return evaluate_probabilities(Y, p, ood_scores=scores)


def _ood_score(model: Any, X: Any) -> AnyNDArray:
    if hasattr(model, "score_ood"):
        return np.asarray(model.score_ood(X))
    return 1.0 - classes.probabilities_of(model, X).max(axis=1)


def _accepted_and_wrong(curve: Selective) -> AnyNDArray:
    """Return the fraction of all rows that is kept and wrong, for each number that is kept: [N]."""
    return np.asarray(curve.coverage * (1.0 - curve.accuracy))

"""Metrics of classes against scikit-learn's and against counting by hand."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

from gpflow_gvi import metrics
from tests.models import make
from tests.tolerances import ITERATIVE, ROUNDING, STANDARD_ERRORS, assert_close, assert_estimates

sklearn_metrics = pytest.importorskip("sklearn.metrics")

N, J = 200, 4


@pytest.fixture
def predicted(rng):
    probabilities = rng.dirichlet(np.full(J, 0.5), size=N)
    Y = np.array([rng.choice(J, p=0.5 * p + 0.5 / J) for p in probabilities])  # over-confident
    return Y, probabilities


def test_metrics_are_those_of_sklearn(predicted):
    Y, p = predicted
    assert_close(
        metrics.accuracy(Y, p),
        sklearn_metrics.accuracy_score(Y, p.argmax(axis=1)),
    )
    assert_close(metrics.cross_entropy(Y, p), sklearn_metrics.log_loss(Y, p))
    one_hot = np.eye(J)[Y]
    by_class = [sklearn_metrics.brier_score_loss(one_hot[:, j], p[:, j]) for j in range(J)]
    assert_close(metrics.brier(Y, p), sum(by_class))


def test_columns_and_floats_are_labels_too(predicted):
    Y, p = predicted
    for same in (Y[:, None], Y.astype(float), Y.astype(np.uint8), Y.tolist()):
        assert metrics.brier(same, p) == metrics.brier(Y, p)


def test_a_label_that_was_thought_impossible_costs_infinitely_much():
    assert metrics.cross_entropy([1], [[1.0, 0.0]]) == np.inf


def test_auroc_is_that_of_sklearn_ties_included(rng):
    low, high = np.round(rng.normal(size=50), 1), np.round(0.7 + rng.normal(size=30), 1)
    kinds = np.repeat([0, 1], [50, 30])
    expected = sklearn_metrics.roc_auc_score(kinds, np.concatenate([low, high]))
    assert_close(metrics.auroc(low, high), expected)
    assert_close(metrics.auroc(high, low), 1.0 - expected)
    assert metrics.auroc([1.0], [1.0]) == 0.5


@pytest.mark.parametrize("tpr", [0.55, 0.95, 1.0])
def test_false_positives_are_those_of_the_curve_of_sklearn(rng, tpr):
    low, high = np.round(rng.normal(size=50), 1), np.round(0.7 + rng.normal(size=100), 1)
    kinds = np.repeat([0, 1], [50, 100])
    false, true, _ = sklearn_metrics.roc_curve(
        kinds, np.concatenate([low, high]), drop_intermediate=False
    )
    expected = false[true >= tpr - ROUNDING.float64].min()
    assert_close(metrics.fpr_at_tpr(low, high, tpr), expected)


def test_calibration_error_by_hand():
    """Two bins: sure of .9 and right in half of the cases; sure of .6 and always right."""
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    Y = [0, 1, 0, 0]
    assert_close(metrics.ece(Y, p, bins=10), 0.5 * 0.4 + 0.5 * 0.4)
    diagram = metrics.reliability(Y, p, bins=10)
    assert_close(diagram.confidence, [0.6, 0.9])
    assert_close(diagram.accuracy, [1.0, 0.5])
    np.testing.assert_array_equal(diagram.count, [2, 2])


def test_certainty_belongs_to_the_last_bin():
    diagram = metrics.reliability([0, 1], np.eye(2), bins=3)
    np.testing.assert_array_equal(diagram.count, [2])
    assert diagram.confidence == [1.0]


def test_calibrated_probabilities_have_a_small_error(rng):
    p = rng.dirichlet(np.ones(3), size=20_000)
    Y = np.array([rng.choice(3, p=each) for each in p])
    diagram = metrics.reliability(Y, p)
    error = np.sqrt(diagram.confidence * (1.0 - diagram.confidence) / diagram.count)
    assert_estimates(diagram.accuracy, diagram.confidence, error)
    assert metrics.ece(Y, p) < STANDARD_ERRORS * np.average(error, weights=diagram.count)
    assert metrics.ece((Y + 1) % 3, p) > 10.0 * metrics.ece(Y, p)


def test_selective_prediction_counts_the_most_certain_first(predicted):
    Y, p = predicted
    right = p.argmax(axis=1) == Y
    order = np.argsort(-p.max(axis=1), kind="stable")
    curve = metrics.selective(Y, p)
    assert curve.coverage[-1] == 1.0
    assert_close(curve.accuracy[-1], metrics.accuracy(Y, p))
    assert_close(curve.accuracy[49], right[order[:50]].mean())
    perfect = metrics.selective(Y, p, uncertainty=~right)
    worst = metrics.selective(Y, p, uncertainty=right)
    assert worst.area < curve.area < perfect.area
    assert perfect.accuracy[right.sum() - 1] == 1.0


def test_calibration_of_bins_of_equal_counts_and_of_each_class(predicted):
    """By loops; and against a predictor whose error of calibration is known."""
    Y, p = predicted
    order = np.argsort(p.max(axis=1), kind="stable")
    gaps = [
        len(rows) * abs(p[rows].max(axis=1).mean() - (p[rows].argmax(axis=1) == Y[rows]).mean())
        for rows in np.array_split(order, 15)
    ]
    assert_close(metrics.adaptive_ece(Y, p), sum(gaps) / N)
    total = 0.0
    for j in range(J):
        for b in range(10):
            rows = (p[:, j] > b / 10) & (p[:, j] <= (b + 1) / 10)
            if rows.any():
                total += rows.sum() * abs(p[rows, j].mean() - (Y[rows] == j).mean()) / N / J
    assert_close(metrics.classwise_ece(Y, p, bins=10), total)
    always = np.tile([0.9, 0.1], [100, 1])
    right = np.repeat([0, 1], [60, 40])
    for measure in (metrics.adaptive_ece, metrics.classwise_ece):
        assert_close(measure(right, always, bins=1), 0.3)


def test_areas_of_risks_are_those_of_their_definitions(predicted):
    Y, p = predicted
    wrong = p.argmax(axis=1) != Y
    by_certainty = np.argsort(-p.max(axis=1), kind="stable")
    risks = [wrong[by_certainty[:k]].mean() for k in range(1, N + 1)]
    assert_close(metrics.aurc(Y, p), np.mean(risks))
    # Traub et al. 2024, eq. 6: by the AUROC of failures, and the accuracy.
    a = metrics.accuracy(Y, p)
    of_failures = sklearn_metrics.roc_auc_score(wrong, 1.0 - p.max(axis=1))
    expected = (1.0 - of_failures) * a * (1.0 - a) + 0.5 * (1.0 - a) ** 2
    assert_close(metrics.augrc(Y, p), expected)


def test_coverage_at_a_risk_and_risk_at_a_coverage():
    p = np.stack([np.linspace(0.9, 0.6, 10), np.linspace(0.1, 0.4, 10)], axis=1)
    Y = np.array([0, 0, 0, 1, 0, 0, 0, 1, 1, 1])  # risks 0 0 0 1/4 1/5 1/6 1/7 2/8 3/9 4/10
    curve = metrics.selective(Y, p)
    for risk, coverage in ((0.05, 0.3), (1 / 7, 0.7), (0.25, 0.8), (0.4, 1.0)):
        assert metrics.coverage_at_risk(curve, risk) == coverage
    for coverage, risk in ((0.3, 0.0), (0.35, 1 / 4), (0.8, 0.25)):
        assert_close(metrics.risk_at_coverage(curve, coverage), risk, scale=1.0)
    assert metrics.coverage_at_risk(metrics.selective(1 - Y[:1], p[:1])) == 0.0


def test_one_call_has_all_measures(rng):
    from sklearn.linear_model import LogisticRegression

    names = np.array(["yes", "no", "perhaps"])
    kinds = rng.integers(3, size=300)
    X = 2.0 * np.eye(3)[kinds] + rng.normal(size=(300, 3))
    ood = X + 9.0
    fitted = LogisticRegression().fit(X[:200], names[kinds[:200]])
    found = metrics.evaluate_classes(fitted, (X[200:], names[kinds[200:]]), ood=ood)
    p = fitted.predict_proba(X[200:])
    Y = np.searchsorted(fitted.classes_, names[kinds[200:]])
    assert_close(found["nll"], sklearn_metrics.log_loss(Y, p))
    assert_close(
        found["risk_at_80_percent_coverage"], metrics.risk_at_coverage(metrics.selective(Y, p))
    )
    scores = [1.0 - fitted.predict_proba(each).max(axis=1) for each in (X[200:], ood)]
    is_ood, joined = np.repeat([0, 1], [100, 300]), np.concatenate(scores)
    assert_close(found["ood_auroc"], sklearn_metrics.roc_auc_score(is_ood, joined))
    precision, recall, _ = sklearn_metrics.precision_recall_curve(is_ood, joined)
    assert_close(found["ood_aupr"], -np.sum(np.diff(recall) * precision[:-1]))
    assert found["ood_fpr95"] == metrics.fpr_at_tpr(*scores)
    assert found == metrics.evaluate_probabilities(Y, p, ood_scores=tuple(scores))
    assert set(metrics.CLASS_METRICS) < set(found)

    class Scored:
        classes_, predict_proba = fitted.classes_, fitted.predict_proba

        def score_ood(self, X):
            return np.abs(X).sum(axis=1)

    with_scores = metrics.evaluate_classes(Scored(), (X[200:], names[kinds[200:]]), ood=ood)
    assert with_scores["ood_auroc"] == 1.0 > found["ood_auroc"]
    model = make(3, gpflow.likelihoods.MultiClass(3))
    figures = metrics.evaluate_classes(model, (rng.normal(size=(30, 1)), kinds[:30]))
    assert set(figures) == {name for name in found if not name.startswith("ood")}


def test_what_predicts_no_probabilities_is_refused():
    with pytest.raises(TypeError, match=r"model is a Sequential without .*evaluate_probabilities"):
        metrics.evaluate_classes(keras.Sequential(), (np.zeros((3, 1)), [0, 1, 1]))


def test_evaluate_knows_classifiers(rng):
    X, Y = rng.normal(size=(30, 1)), rng.integers(3, size=30)
    model = make(3, gpflow.likelihoods.MultiClass(3))
    figures = metrics.evaluate(model, (X, Y))
    assert set(figures) == set(metrics.CLASS_METRICS)
    density = model.predict_log_density((X, Y))
    assert_close(figures["nll"], -np.mean(density), ITERATIVE)
    best = np.argmax(model.predict_y(X)[0], axis=1)
    assert figures["accuracy"] == np.mean(best == Y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.accuracy([0], [[0.7, 0.7]]), "probabilities has rows .* sum to one"),
        (lambda: metrics.evaluate_classes(None, (1, 2, 3)), "data is a tuple; it must be the pair"),
        (lambda: metrics.accuracy([0], [0.5, 0.5]), r"probabilities has shape \(2,\)"),
        (lambda: metrics.accuracy([2], [[0.5, 0.5]]), "whole numbers from 0 to 1"),
        (lambda: metrics.accuracy([0, 1], [[0.5, 0.5]]), r"labels has shape \(2, 1\).* 1 rows"),
        (lambda: metrics.ece([0], [[0.5, 0.5]], bins=0), "bins is 0"),
        (lambda: metrics.selective([0], [[0.5, 0.5]], [np.nan]), "uncertainty has"),
        (lambda: metrics.auroc([], [1.0]), "negative is empty"),
        (lambda: metrics.fpr_at_tpr([1.0], [np.nan]), "positive is empty or has NaN"),
        (lambda: metrics.fpr_at_tpr([1.0], [1.0], 0.0), "tpr is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

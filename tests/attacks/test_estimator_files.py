"""Changed files of estimators are refused, or predict: none of them ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

from gpflow_gvi.saving import estimator_files
from gpflow_gvi.saving.estimator_checks import require_valid

from . import estimator_files as attacks


@pytest.mark.slow
def test_two_hundred_changed_files_of_each_estimator():
    command = [sys.executable, "-m", "tests.attacks.estimator_files", "200"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    # Estimators print progress if their verbosity was changed.
    lines = [line for line in done.stdout.splitlines() if line.startswith("file ")]
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    assert len(lines) == 200 * len(attacks.ESTIMATORS)


def test_a_few_changed_files():
    original = attacks.content(attacks.fitted("histograms"))
    changes = (attacks.changed(original, np.random.default_rng(seed)) for seed in range(5))
    assert all(attacks.outcome(change).split()[0] in ("refused", "predicted") for change in changes)


@pytest.mark.parametrize("name", attacks.ESTIMATORS)
def test_what_was_fitted_is_read_and_predicts_the_same(name):
    estimator = attacks.fitted(name)
    read = estimator_files.read(attacks.content(estimator), {})
    np.testing.assert_array_equal(read.predict(attacks.X), estimator.predict(attacks.X))


def with_nodes(tree, **fields):
    """The state of a tree with other numbers in the first node, which is a split."""
    state = tree.__getstate__()
    nodes = state["nodes"].copy()
    for name, value in fields.items():
        if name in nodes.dtype.names:
            nodes[name][0] = value
    return state | {"nodes": nodes} | {k: v for k, v in fields.items() if k in state}


NODES = [
    ({"right_child": 10**6}, "children"),
    ({"left_child": 0}, "children"),  # a circle
    ({"left_child": 2, "right_child": 2}, "parent"),
    ({"feature": 3}, "columns"),
    ({"feature": -3}, "columns"),
    ({"max_depth": 0}, "max_depth"),  # the memory of paths
    ({"node_count": 0}, "nodes"),
]


@pytest.mark.parametrize(("fields", "message"), NODES)
def test_nodes_of_a_tree_lead_somewhere(fields, message):
    estimator = DecisionTreeRegressor().fit(attacks.X, attacks.y)
    require_valid({"in": [estimator]})
    estimator.tree_.__setstate__(with_nodes(estimator.tree_, **fields))
    with pytest.raises(ValueError, match=rf"Tree in it has .*{message}.*Save the estimator anew"):
        require_valid({"in": [estimator]})


HISTOGRAMS = [
    ({"left": 10**6}, "children"),
    ({"feature_idx": 3}, "columns"),
    ({"is_categorical": 1}, "bitsets"),
]


@pytest.mark.parametrize(("fields", "message"), HISTOGRAMS)
def test_nodes_of_a_tree_of_histograms_lead_somewhere(fields, message):
    estimator = attacks.fitted("histograms")
    predictor = estimator._predictors[1][0]
    for name, value in fields.items():
        predictor.nodes[name][0] = value
    with pytest.raises(ValueError, match=rf"in it has .*{message}.*Save the estimator anew"):
        require_valid(estimator)


def test_splits_by_categories_are_of_columns_that_have_some():
    estimator = attacks.fitted("histograms")
    predictor = estimator._predictors[0][0]
    predictor.nodes["is_categorical"][0] = 1
    predictor.raw_left_cat_bitsets = np.zeros((1, 8), np.uint32)
    predictor.binned_left_cat_bitsets = np.zeros((1, 8), np.uint32)
    with pytest.raises(ValueError, match="categories of a column that has none"):
        require_valid(estimator)


def changed_attribute(name, attribute, change):
    estimator = attacks.fitted(name)
    setattr(estimator, attribute, change(getattr(estimator, attribute)))
    return estimator


ATTRIBUTES = [
    ("forest", "n_features_in_", lambda n: n - 1, "a tree of 3 columns for 2"),
    ("forest", "estimators_", lambda trees: [attacks.fitted("linear")], "other members"),
    ("histograms", "n_features_in_", lambda n: 10**9, "n_features_in_ 1000000000"),
    ("isolation", "estimators_features_", lambda f: [f[0][:1], *f[1:]], "columns for 1"),
    ("boosting", "estimators_", lambda e: np.repeat(e, 3, axis=1), "for 1"),
    ("boosting", "init_", lambda e: attacks.fitted("boosting"), None),
    ("tree", "tree_", lambda e: None, "other members"),
    ("vectors", "support_vectors_", lambda a: a[:, :1], "support_vectors_ of shape"),
    ("vectors", "_dual_coef_", lambda a: a[:, :1], "_dual_coef_ of shape"),
    ("vectors of classes", "_n_support", lambda a: a + 7, "of its classes"),
    ("vectors of classes", "_probA", lambda a: np.zeros(1), "_probA of shape"),
    ("vectors of classes", "_sparse", lambda a: True, "sparse"),
    ("neighbours", "_y", lambda a: a + 1, "labels without a class"),
    ("neighbours", "_fit_X", lambda a: a[:, :2], "_fit_X of shape"),
]


@pytest.mark.parametrize(("name", "attribute", "change", "message"), ATTRIBUTES)
def test_attributes_of_estimators_fit_together(name, attribute, change, message):
    estimator = changed_attribute(name, attribute, change)
    if message is None:
        require_valid(estimator)
        return
    with pytest.raises(ValueError, match=message):
        require_valid(estimator)


def test_an_estimator_within_another_is_checked_before_it_predicts():
    estimator = attacks.fitted("boosting")
    estimator.init_ = attacks.fitted("histograms")
    require_valid(estimator)
    estimator.init_._predictors[0][0].nodes["feature_idx"][0] = 10**6
    with pytest.raises(ValueError, match=r"HistGradientBoostingRegressor in it has .*columns"):
        require_valid(estimator)


def test_columns_with_names_are_read_without_a_warning():
    X = pd.DataFrame(attacks.X, columns=["a", "b", "c"])
    estimator = attacks.ESTIMATORS["histograms"]().fit(X, attacks.y)
    read = estimator_files.read(attacks.content(estimator), {})
    np.testing.assert_array_equal(read.predict(X), estimator.predict(X))


def test_a_random_generator_that_would_take_hours_is_not_made():
    original = attacks.content(attacks.fitted("histograms"))
    parts = attacks.parts_of(original)
    schema = parts["schema.json"].decode()
    assert '"content": "4"' in schema
    parts["schema.json"] = schema.replace('"content": "4"', f'"content": "{2**62}"').encode()
    with pytest.raises(ValueError, match="a seed that NumPy does not make"):
        estimator_files.read(attacks.archived(parts), {})

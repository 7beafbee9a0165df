"""What compiled code of scikit-learn takes on trust: checked in estimators that files hold.

Predictions follow indices of these parts without looking whether they lie within an array, and an
attacker can have changed them: the process would crash, or never end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

_ROWS_OF_INPUTS = ("cluster_centers_", "components_", "exp_dirichlet_component_", "_fit_X")
"""Fitted attributes that are rows of as many numbers as an input has."""

MAX_COLUMNS = 2**24
"""The maximal number of columns: a row of zeros is made to see what an estimator makes of it."""


def require_valid(estimator: Any) -> None:
    """Raise unless all parts of an estimator, and of those in it, fit together."""
    for thing in _parts(estimator, {}):
        names = [base.__name__ for base in type(thing).__mro__]
        for name, check in _CHECKS.items():
            if name in names:
                check(thing)


def _parts(thing: Any, found: dict[int, Any]) -> Iterator[Any]:
    """Yield all that is within an object, and the object: each once, and before what it is in.

    So an estimator that a check lets predict has been checked.
    """
    if id(thing) in found or isinstance(thing, type | str | bytes | float | int):
        return
    found[id(thing)] = thing
    inside: Iterable[Any] = getattr(thing, "__dict__", {}).values()
    if isinstance(thing, dict):
        inside = thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        inside = thing
    elif isinstance(thing, np.ndarray):
        inside = thing.ravel().tolist() if thing.dtype.hasobject else ()
    for part in inside:
        yield from _parts(part, found)
    yield thing


def _require(condition: Any, thing: Any, what: str) -> None:
    if not np.all(condition):
        raise ValueError(
            f"a {type(thing).__name__} in it has {what}, which fitting does not lead to. Save the "
            "estimator anew."
        )


def _num_columns(estimator: Any) -> int:
    """Return the number of numbers in a row that an estimator lets pass."""
    number = vars(estimator).get("n_features_in_")
    is_number = isinstance(number, int | np.integer) and 0 < number <= MAX_COLUMNS
    _require(is_number, estimator, f"n_features_in_ {number!r:.50}")
    return int(number)


def _array(thing: Any, name: str, shape: tuple[int | None, ...], kinds: str) -> AnyNDArray:
    """Return an attribute, or raise unless it is an array of a shape and of a kind of numbers."""
    value = vars(thing).get(name)
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in kinds
    found = np.shape(value) if is_array else None
    fits = found is not None and len(found) == len(shape)
    fits = fits and all(n in (None, m) for n, m in zip(shape, found or (), strict=True))
    _require(fits, thing, f"{name} of shape {found} in the place of {shape}")
    array: AnyNDArray = value
    return array


def _depth_of(thing: Any, left: AnyNDArray, right: AnyNDArray, inner: AnyNDArray) -> int:
    """Return the depth of a binary tree, or raise unless each node but the first has one parent.

    A child has a larger number than its parent, so that no path has a circle.
    """
    parents = np.flatnonzero(inner)
    children = np.stack([left[parents], right[parents]]).astype(np.int64)  # [2, I]
    within = (children > parents) & (children < len(inner))
    _require(len(inner) > 0, thing, "no nodes")
    _require(within, thing, "children that are not among the nodes after their parent")
    times = np.bincount(children.ravel(), minlength=len(inner))
    _require(times[1:] == 1, thing, "nodes without a parent, or with several")
    depth, level = 0, np.zeros(1, np.int64)
    while np.any(inner[level]):
        level = level[inner[level]]
        level = np.concatenate([left[level], right[level]]).astype(np.int64)
        depth += 1
    return depth


def _check_tree(tree: Any) -> None:
    counts = (tree.n_features, tree.n_outputs, tree.max_n_classes)
    _require(np.array(counts) >= 1, tree, f"(n_features, n_outputs, max_n_classes) {counts}")
    # Before its arrays are looked at, which are views of memory.
    count, capacity = tree.node_count, tree.capacity
    _require(0 < count <= capacity, tree, f"{count} nodes in the memory of {capacity}")
    nodes = tree.__getstate__()["nodes"]
    inner = nodes["left_child"] != -1
    depth = _depth_of(tree, nodes["left_child"], nodes["right_child"], inner)
    _require(depth <= tree.max_depth < count, tree, f"max_depth {tree.max_depth}, of {depth}")
    feature = nodes["feature"][inner]
    _require((feature >= 0) & (feature < tree.n_features), tree, "splits by columns that X lacks")


def _trees(estimator: Any) -> list[Any]:
    """Return the trees of a decision tree, or of an ensemble of them; none if it is not fitted."""
    from sklearn.tree._tree import Tree

    members = [estimator] if "tree_" in vars(estimator) else vars(estimator).get("estimators_", [])
    members = np.ravel(np.array(members, dtype=object)).tolist()
    trees = [vars(member).get("tree_") for member in members]
    are_trees = all(isinstance(tree, Tree) for tree in trees)
    _require(are_trees, estimator, "other members than decision trees")
    return trees


def _check_trees(estimator: Any, given: Any = None) -> None:
    """Check that each tree has as many columns as it is given: all of X, unless others are said."""
    trees = _trees(estimator)
    columns = [_num_columns(estimator) for _ in trees] if given is None else map(len, given)
    for tree, count in zip(trees, columns, strict=True):
        width = tree.n_features
        _require(width == count, estimator, f"a tree of {width} columns for {count} of X")


def _check_columns(estimator: Any) -> None:
    for name in _ROWS_OF_INPUTS:
        if isinstance(vars(estimator).get(name), np.ndarray):
            _array(estimator, name, (None, _num_columns(estimator)), "fiub")


def _check_vectors(estimator: Any) -> None:
    """Check a support vector machine, which needs memory of the sizes that the classes say."""
    if "support_" not in vars(estimator):
        return
    _require(not vars(estimator).get("_sparse"), estimator, "sparse support vectors")
    _require("_impl" not in vars(estimator), estimator, "an _impl of its own")
    (count,) = _array(estimator, "support_", (None,), "i").shape
    of_class = _array(estimator, "_n_support", (None,), "i")
    classes = len(of_class)
    pairs = classes * (classes - 1) // 2
    _require(classes >= 2 and np.all(of_class >= 0), estimator, f"_n_support {of_class}")
    total = np.sum(estimator.n_support_)
    _require(total == count, estimator, f"{count} support vectors, and {total} of its classes")
    _array(estimator, "_dual_coef_", (classes - 1, count), "f")
    _array(estimator, "_intercept_", (pairs,), "f")
    for name in ("_probA", "_probB"):
        if np.size(vars(estimator).get(name)):
            _array(estimator, name, (pairs,), "f")
    if callable(estimator.kernel) or estimator.kernel == "precomputed":
        rows = estimator.shape_fit_[0]
        inside = (estimator.support_ >= 0) & (estimator.support_ < rows)
        _require(inside, estimator, f"support_ beyond its {rows} rows")
    else:
        _array(estimator, "support_vectors_", (count, _num_columns(estimator)), "f")


def _check_neighbours(estimator: Any) -> None:
    if "_y" not in vars(estimator):
        return
    labels = np.asarray(estimator._y)
    classes = estimator.classes_ if estimator.outputs_2d_ else [estimator.classes_]
    columns = labels.reshape(len(labels), -1)
    fits = labels.dtype.kind in "iu" and columns.shape[1] == len(classes)
    fits = fits and len(labels) == len(estimator._fit_X) and columns.min() >= 0
    counts = [len(each) for each in classes]
    _require(fits and np.all(columns.max(axis=0) < counts), estimator, "labels without a class")


def _check_isolation_forest(estimator: Any) -> None:
    is_of_all = not _trees(estimator) or estimator._max_features == _num_columns(estimator)
    _check_trees(estimator, None if is_of_all else estimator.estimators_features_)


def _check_boosted(estimator: Any) -> None:
    """Check gradient boosting, where each tree of a stage adds to a column of the first guess."""
    _check_trees(estimator)
    if "estimators_" not in vars(estimator):
        return
    columns = _num_columns(estimator)
    outputs = estimator._raw_predict_init(np.zeros((1, columns), np.float32)).shape[1]
    shape = np.shape(estimator.estimators_)
    _require(shape[1:] == (outputs,), estimator, f"estimators_ of shape {shape} for {outputs}")


def _check_histograms(estimator: Any) -> None:
    """Check histogram gradient boosting, whose trees split by its columns and by sets of bits."""
    if "_predictors" not in vars(estimator):
        return
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    columns = _num_columns(estimator)
    if estimator._preprocessor is not None:  # which encodes categories
        with warnings.catch_warnings():  # of columns without names
            warnings.simplefilter("ignore")
            columns = estimator._preprocessor.transform(np.zeros((1, columns))).shape[1]
    is_categorical = _array(estimator._bin_mapper, "is_categorical_", (columns,), "biu")
    for predictor in (predictor for stage in estimator._predictors for predictor in stage):
        nodes = _array(predictor, "nodes", (None,), "V")
        _require(nodes.dtype == PREDICTOR_RECORD_DTYPE, predictor, f"nodes of {nodes.dtype}")
        inner = nodes["is_leaf"] == 0
        _depth_of(predictor, nodes["left"], nodes["right"], inner)
        feature = nodes["feature_idx"][inner]
        within = (feature >= 0) & (feature < columns)
        _require(within, estimator, "splits by columns that X lacks")
        by_category = nodes[inner & (nodes["is_categorical"] != 0)]
        for name in ("binned_left_cat_bitsets", "raw_left_cat_bitsets"):
            bits = _array(predictor, name, (None, 8), "u")
            _require(by_category["bitset_idx"] < len(bits), predictor, f"splits that {name} lacks")
        of_categories = is_categorical[by_category["feature_idx"]]
        _require(of_categories, estimator, "splits by categories of a column that has none")


# Each relies on what those before it have checked.
_CHECKS: dict[str, Callable[[Any], None]] = {
    "Tree": _check_tree,
    "BaseDecisionTree": _check_trees,
    "BaseEstimator": _check_columns,
    "BaseLibSVM": _check_vectors,
    "KNeighborsClassifier": _check_neighbours,
    "RadiusNeighborsClassifier": _check_neighbours,
    "BaseForest": _check_trees,
    "IsolationForest": _check_isolation_forest,
    "BaseGradientBoosting": _check_boosted,
    "BaseHistGradientBoosting": _check_histograms,
}
"""The checks, by the names of the classes of scikit-learn that they are for, and of all below."""

"""Files of fitted estimators of scikit-learn, without pickle, in the format of skops."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from . import archive
from .estimator_checks import require_valid

_TRUSTED = frozenset(
    {
        "gpflow_gvi.learning.log_process.LogProcess",
        "numpy.dtype",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
    }
)
"""What is read beside what skops trusts by itself, which is estimators of scikit-learn, arrays of
NumPy and Python's own containers and numbers. A dtype is that of an array that was read, and the
arrays of trees are checked."""


_POOL_SIZE = "4"
"""The size of the pool of `numpy.random.SeedSequence`, as skops writes it."""


def is_theirs(thing: Any) -> bool:
    """Return True if a thing is an estimator of scikit-learn, or made of its base class."""
    base = sys.modules.get("sklearn.base")
    return base is not None and isinstance(thing, base.BaseEstimator)


def write(estimator: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the file of a fitted estimator, and the options of `read`, which has none.

    :raises ValueError: if it has parts that `read` would refuse.
    """
    import skops.io

    content = skops.io.dumps(estimator)
    unknown = sorted(set(skops.io.get_untrusted_types(data=content)) - _TRUSTED)
    if unknown:
        raise ValueError(
            f"it has parts that could only be read by running code of the file, {unknown[:3]}. "
            "Save it by its own method, and learn with predictor=None, or with an estimator of "
            "scikit-learn, to save the rest."
        )
    require_valid(estimator)
    return content, {}


def read(content: bytes, custom_objects: Mapping[str, Any]) -> Any:
    """Return the estimator of a file, made of trusted types and of those in `custom_objects`."""
    import skops.io

    files = archive.members(content)  # stored, not compressed, and no larger than the file
    _require_small_pools(json.loads(files["schema.json"]))
    needed = set(skops.io.get_untrusted_types(data=content))
    unknown = sorted(needed - _TRUSTED - set(custom_objects))
    if unknown:
        raise ValueError(
            f"an estimator may not be read: it is made of {unknown[:3]}. If you know these, pass "
            "them in custom_objects, under these names."
        )
    estimator = skops.io.loads(content, trusted=sorted(needed))
    require_valid(estimator)
    is_fit_for_use = hasattr(estimator, "predict") or hasattr(estimator, "transform")
    if not (is_theirs(estimator) and is_fit_for_use):
        raise ValueError(f"a file of an estimator holds a {type(estimator).__name__}.")
    return estimator


def _require_small_pools(schema: Any) -> None:
    """Raise if a random generator is to be built from a pool of another size than NumPy's.

    A large one takes as long as an attacker likes. What has the same `__id__` is built once, from
    the first of its places.
    """
    nodes = list(archive.objects(schema))
    for node in nodes:
        if node.get("__loader__") != "RandomGeneratorNode":
            continue
        seed = node["content"]["seed_seq"]
        pool = seed["content"]["pool_size"]
        ids = [part["__id__"] for part in (seed, pool) if "__id__" in part]
        same = [n for n in nodes if n.get("__id__", nodes) in ids]
        if any(n is not seed and n.get("content") != _POOL_SIZE for n in (pool, *same)):
            raise ValueError("a random generator in it has a seed that NumPy does not make.")

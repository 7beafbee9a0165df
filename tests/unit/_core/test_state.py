"""Whether variables have changed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi._core.state import MAX_SMALL, Snapshot

SHAPES = {
    "a number": ([], np.float64),
    "a vector": ([3], np.float64),
    "a matrix": ([4, 5], np.float64),
    "a large one": ([MAX_SMALL + 1], np.float64),
    "another large one": ([2, MAX_SMALL], np.float64),
    "a count": ([], np.int64),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_change_of_one_element_is_seen(name):
    variables = {each: tf.Variable(np.ones(*SHAPES[each])) for each in SHAPES}
    snapshot = Snapshot(variables.values())
    assert snapshot.is_current()
    changed = variables[name].numpy().reshape(-1)
    changed[-1] = 2
    variables[name].assign(changed.reshape(variables[name].shape))
    assert not snapshot.is_current()
    snapshot.renew()
    assert snapshot.is_current()

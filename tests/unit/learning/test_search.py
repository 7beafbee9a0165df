"""The search for candidates: which of them are fitted again to be judged."""

from __future__ import annotations

import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.learning.summary import UNSEEN


@pytest.mark.slow
@pytest.mark.parametrize("are_useful", [False, True])
def test_around_predictors_a_process_is_judged_where_they_help_it(are_useful, rng):
    """Trees say nothing of labels by a logistic function of x that a kernel does not, but of steps.

    Fits without each fold are the most of the time, and few rows have three partitions of them.
    """
    X = rng.uniform(-1.0, 1.0, size=(120, 4))
    if are_useful:
        y = np.where((X[:, 0] > 0.3) == ((X[:, 1] > -0.2) & (X[:, 2] > 0.0)), "a", "b")
    else:
        odds = 6.0 * X[:, 0] - 3.0 * X[:, 1]
        y = np.where(odds + rng.logistic(size=120) > 0.0, "a", "b")
    stages = gvi.learn((X, y)).record.stages
    around = [stage.what for stage in stages if "around predictors" in stage.what]
    assert any(what.endswith(" 120 rows") for what in around)
    assert any(what.endswith(UNSEEN) for what in around) == are_useful

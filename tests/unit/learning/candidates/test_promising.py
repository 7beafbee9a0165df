"""Predictors that are worth a fit around them."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_gvi.learning.candidates.promising import have_small_errors, useful


@pytest.mark.parametrize(
    ("errors", "num_networks", "kept"),
    [([1.0, 1.9, 2.1], 0, [0, 1]), ([1.0, 1.9, 0.9], 1, [0, 2]), ([1.0, 0.9, 0.95], 1, [0, 1])],
)
def test_a_network_is_kept_where_it_errs_least(errors, num_networks, kept, rng):
    signs = rng.choice([-1.0, 1.0], size=(50, 1, 1))
    values = signs * np.array(errors)[:, None]  # [N, C, 1]
    assert useful(values, num_networks) == kept


@pytest.mark.parametrize(("ratios", "expected"), [([1.05, 3.0], True), ([1.2, 3.0], False)])
def test_one_predictor_with_small_errors_is_promising(ratios, expected, rng):
    of_process = rng.normal(size=(50, 2))
    of_predictors = of_process[:, None, :] * np.array(ratios)[:, None]
    assert have_small_errors(of_predictors, of_process) == expected

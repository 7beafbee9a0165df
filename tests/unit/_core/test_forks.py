"""A forked process says that TensorFlow cannot compute in it, where it would wait for ever."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest

from gpflow_gvi.errors import ForkedProcessError
from tests import models

if not hasattr(os, "fork"):
    pytest.skip("this system does not fork processes", allow_module_level=True)


def predict(results, model, X):
    try:
        model.predict_f(X)
    except ForkedProcessError as error:
        results.put(str(error))


def test_predictions_after_a_fork_are_refused_at_once():
    model = models.make()
    X, _ = models.data()
    expected = model.predict_f(X)[0]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=predict, args=(results, model, X))
    child.start()
    try:
        assert "get_context('spawn')" in results.get(timeout=60)
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
    np.testing.assert_array_equal(model.predict_f(X)[0], expected)  # in the parent nothing changes

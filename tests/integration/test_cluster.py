"""Predictors that are fitted on two processes of a cluster, against the same call in one."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_task_stream
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

import gpflow_gvi as gvi
from tests.tolerances import ITERATIVE, assert_close


@pytest.mark.slow
def test_predictors_of_two_processes_are_those_of_one(rng):
    X = rng.uniform(-1.0, 1.0, size=(1_000, 4))
    Y = np.sin(3.0 * X[:, :1] * X[:, 1:2]) + 0.1 * rng.normal(size=(1_000, 1))
    trees = [HistGradientBoostingRegressor(), ExtraTreesRegressor(20, random_state=0)]
    here = gvi.learn((X, Y), predictor=trees, effort="fast", seed=1)
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        get_task_stream(client) as tasks,
        joblib.parallel_config(backend="dask"),
    ):
        there = gvi.learn((X, Y), predictor=trees, effort="fast", seed=1, n_jobs=2)
    assert len({task["worker"] for task in tasks.data if "_fitted" in str(task["key"])}) == 2
    for found, expected in zip(there.predict_y(X[:50]), here.predict_y(X[:50]), strict=True):
        assert_close(found, expected, ITERATIVE)

"""What all tests share: slow tests on request, checked shapes, seeded randomness."""

from __future__ import annotations

import collections
import os

# TensorFlow's start-up lines would drown the report of pytest.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:  # a process for each core: more threads would be in the way
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import check_shapes
import gpflow
import numpy as np
import pytest
import tensorflow as tf


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runslow", action="store_true", help="run the slow tests as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--runslow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --runslow")
    cases: collections.Counter[str] = collections.Counter()
    for item in items:
        # Of a `thin(n)` test every n-th case is run; each value of each parameter is among them
        # where n divides none of their numbers.
        thin = item.get_closest_marker("thin")
        test = item.nodeid.partition("[")[0]
        if "slow" in item.keywords or (thin and cases[test] % thin.args[0]):
            item.add_marker(skip)
        cases[test] += 1


@pytest.fixture(autouse=True)
def _checked_shapes_and_seeds():
    check_shapes.set_enable_check_shapes(check_shapes.ShapeCheckingState.ENABLED)
    tf.random.set_seed(0)
    yield
    assert gpflow.default_float() == np.float64, "a test left another default float behind"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20231001)

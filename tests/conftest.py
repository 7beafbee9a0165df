"""What all tests share: which of them run, devices, seeded randomness."""

from __future__ import annotations

import gc
import os
import random

# TensorFlow's start-up lines would drown the report of pytest.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:  # one process per core, so one thread per process
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import numpy as np
import pytest

from tests import slow
from tests.slow import pytest_collection_modifyitems  # noqa: F401

# TensorFlow is imported by the tests: the process of pytest-xdist that only hands them out needs
# none of it, and starts its workers the sooner.


def pytest_addoption(parser: pytest.Parser) -> None:
    slow.pytest_addoption(parser)
    parser.addoption(
        "--check-graphs",
        action="store_true",
        help="check shapes in graphs, too, where GPflow's default is to check them outside alone",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the process of tests, before any of them is imported."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # it only hands them out
    import check_shapes

    # Else GPflow's docstrings are parsed as it is imported: most of the time that this takes.
    check_shapes.set_rewrite_docstrings(None)
    if config.getoption("--check-graphs"):
        check_shapes.set_enable_check_shapes(check_shapes.ShapeCheckingState.ENABLED)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """TensorFlow keeps every traced graph, a hundred thousand objects in eight of them.

    The garbage collector would go through all of them again and again. New objects it would go
    through at every 700, which are a few operations.
    """
    gc.set_threshold(50_000, 20, 50)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _process_seeded() -> None:
    import keras

    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest):
    """Seed the generators of Python and NumPy, and TensorFlow's where a test draws from it.

    TensorFlow forgets its compiled operations with each seed: a sixth of the time of all tests.
    """
    import gpflow
    import keras

    if any(map(request.node.get_closest_marker, ("draws", "slow"))):
        keras.utils.set_random_seed(0)
    else:
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002, of scikit-learn, where no other is given
    yield
    assert gpflow.default_float() == np.float64, "a test left another default float behind"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20231001)

"""What all tests share: slow tests on request, checked shapes, seeded randomness."""

from __future__ import annotations

import functools
import gc
import os
import sys
import typing

# TensorFlow's start-up lines would drown the report of pytest.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:  # one process per core, so one thread per process
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

if sys.version_info < (3, 12):
    # TensorFlow asks for the attributes of its protocols at nearly every operation. Later versions
    # of Python keep them; without that they are an eighth of the time of these tests.
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)
    typing._is_callable_members_only = functools.cache(typing._is_callable_members_only)

import random
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest

# TensorFlow is imported by the tests: the process of pytest-xdist that only hands them out needs
# none of it, and starts its workers the sooner.
if "PYTEST_XDIST_WORKER" in os.environ:
    import skops.io  # noqa: F401  # looks for each function of NumPy in all modules that are there
    from check_shapes import set_rewrite_docstrings

    set_rewrite_docstrings(None)  # a second for GPflow and this package, before they are imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runslow", action="store_true", help="run the slow tests as well")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the process of tests, before any of them is imported."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # it only hands them out
    if not config.getoption("--runslow"):
        _import_gpflow_without_checks()
    import tensorflow as tf

    # Replicas can then be compared with one worker here: another process would take seconds.
    [cpu] = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)


def _import_gpflow_without_checks() -> None:
    """Import GPflow without its own checks of shapes, which take a tenth of the time of the tests.

    Those of this package are left as they are.
    """
    import check_shapes

    check_shapes.set_enable_check_shapes(check_shapes.ShapeCheckingState.DISABLED)
    with mock.patch.object(check_shapes, "check_shape", lambda shaped, *_: shaped):
        import gpflow  # noqa: F401
    check_shapes.set_enable_check_shapes(check_shapes.ShapeCheckingState.ENABLED)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--runslow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --runslow")
    for item in items:
        if item.get_closest_marker("slow"):  # keywords also have the names of folders
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _graphs_as_they_are_traced(request: pytest.FixtureRequest) -> None:
    """Without `--runslow`, TensorFlow does not optimise graphs: that is a sixth of a short `fit`.

    XLA compiles as ever. The slow run, and `make programs`, have graphs optimised as users do.
    """
    import tensorflow as tf

    if not request.config.getoption("--runslow"):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture
def graphs_of_users(request: pytest.FixtureRequest) -> Iterator[None]:
    """Graphs as TensorFlow optimises them, for a test of what that changes."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    slow = request.config.getoption("--runslow")
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not slow})


def _read_parameters_by_one_operation(patch: pytest.MonkeyPatch) -> None:
    """Let a parameter be read by one operation, not by a dozen.

    A bijector of TFP looks for what it transformed before. Every reading of a parameter is another
    tensor, so it never finds one, but it searches for a third of the time that a parameter takes.
    And its softplus is made of ten operations, to be accurate far below the values of any test.
    """
    import tensorflow as tf
    from tensorflow_probability.python.bijectors.identity import Identity
    from tensorflow_probability.python.bijectors.softplus import Softplus
    from tensorflow_probability.python.internal import cache_util

    transformed = Softplus.forward

    def forward(bijector: Softplus, x: tf.Tensor, *args: str, **by: str) -> tf.Tensor:
        is_plain = bijector.hinge_softness is None and bijector.low is None
        return tf.nn.softplus(x) if is_plain else transformed(bijector, x, *args, **by)

    def uncached(name: str) -> Callable[..., tf.Tensor]:
        return lambda cache, value, **by: getattr(cache.bijector, name)(value, **by)

    for name in ("forward", "inverse"):  # the latter where a parameter is made or assigned to
        patch.setattr(cache_util.BijectorCache, name, uncached(f"_{name}"))
    patch.setattr(Softplus, "forward", forward)
    patch.setattr(
        Identity, "forward", lambda bijector, x, *args, **by: tf.convert_to_tensor(x), raising=False
    )


@pytest.fixture(scope="session", autouse=True)
def _transforms_as_they_are_computed(request: pytest.FixtureRequest) -> pytest.MonkeyPatch:
    """Without `--runslow`, a parameter is read by one operation."""
    patch = pytest.MonkeyPatch()
    if not request.config.getoption("--runslow"):
        _read_parameters_by_one_operation(patch)
    return patch


@pytest.fixture
def transforms_of_tfp(
    request: pytest.FixtureRequest, _transforms_as_they_are_computed: pytest.MonkeyPatch
) -> Iterator[None]:
    """TFP's own transforms, for a test that is about what they keep."""
    _transforms_as_they_are_computed.undo()
    yield
    if not request.config.getoption("--runslow"):
        _read_parameters_by_one_operation(_transforms_as_they_are_computed)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """TensorFlow keeps every traced graph, a hundred thousand objects in eight of them.

    The garbage collector would go through all of them again and again. New objects it would go
    through at every 700, which are a few operations.
    """
    gc.set_threshold(50_000, 20, 50)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _checked_shapes_and_seeds():
    import check_shapes
    import gpflow

    check_shapes.set_enable_check_shapes(check_shapes.ShapeCheckingState.ENABLED)
    _seed()
    yield
    assert gpflow.default_float() == np.float64, "a test left another default float behind"


def _seed() -> None:
    """Seed TensorFlow, NumPy and Python; Keras draws the weights of a network from the last.

    With its seed TensorFlow drops every kernel that it has prepared for an operation, and each test
    would prepare them again: so only if a test drew from the generator of that seed since.
    """
    import keras
    import tensorflow as tf
    from tensorflow.python.eager import context

    eager = context.context()
    if eager._seed == 0 and eager._rng.getstate() == random.Random(0).getstate():
        with mock.patch.object(tf.random, "set_seed"):
            keras.utils.set_random_seed(0)
    else:
        keras.utils.set_random_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20231001)

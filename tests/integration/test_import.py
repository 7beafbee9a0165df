"""Importing the package is quiet, and costs nothing beyond importing GPflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import gpflow
before = set(sys.modules)
sys.stderr.write("@@@"); sys.stderr.flush()
import gpflow_gvi
for name in gpflow_gvi.__all__:
    getattr(gpflow_gvi, name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def imported():
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )


@pytest.mark.slow
def test_import_prints_nothing(imported):
    assert imported.stderr.split("@@@")[1] == ""
    assert len(imported.stdout.splitlines()) == 1  # the script's own line


@pytest.mark.slow
def test_import_loads_nothing_but_the_package_itself(imported):
    # The standard library aside, so a proxy for the time that does not depend on the machine.
    added = json.loads(imported.stdout)
    foreign = {
        name.partition(".")[0]
        for name in added
        if name.partition(".")[0] not in {"gpflow_gvi", *sys.stdlib_module_names}
    }
    assert foreign <= {"gpflux"}  # for the layers
    assert "gpflow_gvi.demo" not in added


FIRST_USE = """
import gpflow_gvi as gvi
import tensorflow as tf
import numpy as np
gvi.kernels
tf.linalg.cholesky(tf.eye(2))
from joblib import Parallel, delayed
error = delayed(gvi.metrics.rmse)
print(Parallel(n_jobs=2)(error(np.zeros((2, 1)), np.ones((2, 1))) for _ in "ab"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "0"])
def test_first_use_is_quiet_unless_the_user_wants_messages(level):
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    command = [sys.executable, "-c", FIRST_USE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[1.0, 1.0]"
    assert (done.stderr == "") == (level is None)


@pytest.mark.slow
def test_tensorflow_starts_without_a_place_for_messages():
    script = "import os, sys; os.close(2); sys.stderr = None; import gpflow_gvi; gpflow_gvi.losses"
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, check=False, env=environment).returncode == 0


def test_an_error_while_tensorflow_is_imported_is_not_hidden(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no such processor')")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import gpflow_gvi; gpflow_gvi.losses"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ImportError: no such processor"

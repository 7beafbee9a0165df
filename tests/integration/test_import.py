"""Importing the package is quiet, and costs nothing beyond importing GPflow."""

from __future__ import annotations

import json
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


def test_import_prints_nothing(imported):
    assert imported.stderr.split("@@@")[1] == ""
    assert len(imported.stdout.splitlines()) == 1  # the script's own line


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

"""The list of what is installed where pip cannot be left to find it: numpy 2, and Python 3.13."""

from __future__ import annotations

from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = pytest.importorskip("tomllib")  # not in Python 3.10, where numpy 2 is not tested either

ROOT = Path(__file__).parents[2]
WITHOUT_DEPENDENCIES = {"gpflow", "gpflux", "gpflow-gvi"}


def _names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(each.name) for each in requirements}


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def listed() -> list[Requirement]:
    lines = (ROOT / "requirements-numpy2.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def ours(project) -> list[Requirement]:
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["tables"], *extras["plots"], *extras["parquet"]]
    found = [Requirement(text) for text in texts]
    return [each for each in found if not _names([each]) & {*WITHOUT_DEPENDENCIES, "numpy"}]


def _of_gpflow_and_gpflux() -> list[Requirement]:
    found = [Requirement(text) for name in ("gpflow", "gpflux") for text in requires(name) or ()]
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


def test_each_requirement_of_this_package_is_listed_as_it_is_declared(listed, ours):
    as_listed, as_declared = (
        {(canonicalize_name(each.name), each.specifier, each.marker) for each in requirements}
        for requirements in (listed, ours)
    )
    assert as_declared <= as_listed


def test_all_that_gpflow_and_gpflux_need_is_listed_and_nothing_else(listed, ours):
    needed = _names(_of_gpflow_and_gpflux()) | _names(ours)
    assert _names(listed) == needed - WITHOUT_DEPENDENCIES
    extras = {each.name: each.extras for each in listed}
    assert extras["tensorflow-probability"] == {"tf"}  # brings tf_keras


def test_numpy_is_of_the_second_version_there_and_on_a_python_without_wheels_of_the_first(
    listed, project
):
    [numpy] = [each for each in listed if each.name == "numpy"]
    assert not numpy.specifier.contains("1.26.4")
    assert numpy.specifier.contains("2.0.0")
    declared = map(Requirement, project["dependencies"])
    [of_project] = [each for each in declared if each.name == "numpy"]
    needs = {v: of_project.marker.evaluate({"python_version": v}) for v in ("3.12", "3.13")}
    assert needs == {"3.12": False, "3.13": True}

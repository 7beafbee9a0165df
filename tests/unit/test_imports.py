"""Imports between the package's modules point one way only."""

from __future__ import annotations

import ast
import graphlib
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpflow_gvi

ROOT = Path(gpflow_gvi.__file__).parent
Graph = dict[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Return the files below a package, by the names of their modules."""
    names = {}
    for file in root.rglob("*.py"):
        parts = file.relative_to(root.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imported(name: str, file: Path, known: dict[str, Path]) -> Iterator[str]:
    """Return the modules of the package that a module imports when it is imported itself."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                target = target if target in known else base
                if target in known and target != name:
                    yield target


def graph_of_modules(root: Path) -> Graph:
    known = modules(root)
    return {name: set(imported(name, file, known)) for name, file in known.items()}


def graph_of_packages(graph: Graph) -> Graph:
    """Return the same for the entries of the package: `gpflow_gvi.models.gvi` counts as `models`.

    `gpflow_gvi` itself, which imports what a user needs, is none of them.
    """
    entries: Graph = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            pair = [module.split(".")[1] for module in (name, target) if "." in module]
            if len(pair) == 2 and pair[0] != pair[1]:
                entries[pair[0]].add(pair[1])
    return entries


def cycle(graph: Graph) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_module_imports_itself_through_others():
    graph = graph_of_modules(ROOT)
    assert "gpflow_gvi.covariances.covariance" in graph["gpflow_gvi.covariances.svgp"]
    assert cycle(graph) == []


def test_no_package_imports_itself_through_others():
    entries = graph_of_packages(graph_of_modules(ROOT))
    assert entries["kernels"] == {"_core", "errors"}
    assert cycle(entries) == []


@pytest.mark.parametrize("back", ["from ..a import first", "from .. import a", "import pack.a"])
def test_a_cycle_is_found(tmp_path, back):
    for file, text in {
        "__init__.py": "from .b import Second\n",
        "a/__init__.py": "",
        "a/first.py": "from ..b.second import Second\n",
        "b/__init__.py": "from .second import Second\n",
        "b/second.py": f"{back}\n",
    }.items():
        path = tmp_path / "pack" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    entries = graph_of_packages(graph_of_modules(tmp_path / "pack"))
    assert sorted(set(cycle(entries))) == ["a", "b"]


@pytest.mark.parametrize("name", ["layers", "sampling", "contexts", "inducing", "recipe", "models"])
def test_modules_are_imported_by_their_public_names(name):
    module = importlib.import_module(f"gpflow_gvi.{name}")
    assert module is getattr(gpflow_gvi, name)
    assert module.__spec__.name == module.__name__  # relative imports within it stay as they are
    with pytest.raises(ModuleNotFoundError, match=r"gpflow_gvi\.layer'"):
        importlib.import_module("gpflow_gvi.layer")

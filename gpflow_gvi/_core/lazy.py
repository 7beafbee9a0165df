"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any


def attach(
    package: str, locations: Mapping[str, str], public: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    :param package: its name.
    :param locations: the module of each name, or module:attribute, below the package.
    :param public: its `__all__`.
    """

    def attribute(name: str) -> Any:
        if name not in locations:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, of_module = locations[name].partition(":")
        found = importlib.import_module(f".{module}", package)
        return getattr(found, of_module) if of_module else found

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *public, *locations})

    return attribute, names


class _Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules by their public names, too, as in `from gpflow_gvi.layers import GVILayer`.

    :param modules: the names of the modules by their public names.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        known = fullname in self._modules
        return importlib.util.spec_from_loader(fullname, self) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._modules[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has been executed, its own name back."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def attach_aliases(package: str, locations: Mapping[str, str]) -> None:
    """Let statements import the modules among the locations of `attach` by their public names."""
    found = {k: v for k, v in locations.items() if ":" not in v and k != v}
    modules = {f"{package}.{name}": f"{package}.{module}" for name, module in found.items()}
    sys.meta_path.append(_Aliases(modules))

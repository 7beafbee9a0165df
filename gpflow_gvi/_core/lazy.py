"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
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

"""Modules of upper layers that lower ones call, by name: the package registers where each is.

So nothing that is learned imports what draws or saves it, and neither is loaded before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES: dict[str, str] = {}


def register(hook: str, module: str) -> None:
    """Say which module does what a hook is for."""
    _MODULES[hook] = module


def registered(hook: str) -> Any:
    """The module that was registered for a hook, imported when it is first asked for."""
    return importlib.import_module(_MODULES[hook])

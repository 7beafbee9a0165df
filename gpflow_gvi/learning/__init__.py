"""The procedure from data in original units to a tempered, calibrated Gaussian process."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .learned import Learned
    from .one_call import learn
    from .rows.parquet import ParquetRows
    from .settings import Settings

__all__ = ["Learned", "ParquetRows", "Settings", "learn"]

_MODULES = {
    "Learned": "learned",
    "ParquetRows": "rows.parquet",
    "Settings": "settings",
    "learn": "one_call",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # Imported when used: the defaults in `settings` are read without TensorFlow.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)

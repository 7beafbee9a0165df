"""From a table to predictions: `gpflow-gvi learn data.csv --target y` and `gpflow-gvi predict`.

`learn_table` makes a `TableModel` of a file, with scores for rows that were held out and a page on
it; `predict_file` writes the predictions of another file beside its columns, a part at a time. What
is said meanwhile goes through `_core.progress`.

The modules are imported when they are first used, so that the command line reads and checks a table
before TensorFlow is there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .learn import learn_table
    from .model import TableModel
    from .predict import predict_file

__all__ = ["TableModel", "learn_table", "predict_file"]

_MODULES = {"TableModel": "model", "learn_table": "learn", "predict_file": "predict"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)

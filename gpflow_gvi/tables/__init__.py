"""From a table to predictions: `gpflow-gvi learn data.csv --target y` and `gpflow-gvi predict`.

`learn_table` makes a `TableModel` of a file, with scores for rows that were held out and a page on
it; `predict_file` writes the predictions of another file beside its columns, a part at a time. What
is said meanwhile goes through `_core.progress`.

The modules are imported when they are first used, so that the command line reads and checks a table
before TensorFlow is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import lazy

if TYPE_CHECKING:
    from .learn import learn_table
    from .model import TableModel, predict_file

__all__ = ["TableModel", "learn_table", "predict_file"]

__getattr__, __dir__ = lazy.attach(
    __name__,
    {
        "TableModel": "model:TableModel",
        "learn_table": "learn:learn_table",
        "predict_file": "model:predict_file",
    },
    __all__,
)

"""From a table to predictions: `gpflow-gvi learn data.csv --target y` and `gpflow-gvi predict`.

`learn_table` makes a `TableModel` of a file, with scores for rows that were held out and a page on
it; `predict_file` writes the predictions of another file beside its columns, a part at a time. What
is said meanwhile goes through `_core.progress`.
"""

from .learn import learn_table
from .model import TableModel
from .predict import predict_file

__all__ = ["TableModel", "learn_table", "predict_file"]

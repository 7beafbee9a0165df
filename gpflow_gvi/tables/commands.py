"""The commands `learn` and `predict`: what they read, write and report.

Mistakes are found before TensorFlow is imported, which takes long.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from .._core import progress
from .._core.quiet import loading
from .names import require_columns
from .prepare import prepare
from .requirements import require_extra, require_file, require_new
from .table_files import header


def learn(
    path: Path,
    target: str,
    output: Path,
    *,
    overwrite: bool,
    predictor: str = "auto",
    effort: Any = "default",
    seed: int = 0,
    **options: Any,
) -> str:
    """Learn from a file, write the model and a page on it to a folder, and return the summary.

    :param path: a file of CSV or Parquet.
    :param target: the column to predict.
    :param output: the folder.
    :param overwrite: whether the model in it may be replaced.
    :param predictor: a parameter of `learn_table`, as the others are.
    """
    require_extra("pandas", "jinja2", "matplotlib")
    is_ours = (output / "structure.json").exists()
    if (
        output.exists()
        and not (is_ours and overwrite)
        and (output.is_file() or any(output.iterdir()))
    ):
        remedy = "pass --overwrite to replace it, or name" if is_ours else "name"
        raise FileExistsError(f"{output} is in use; {remedy} another folder by --output.")
    require_file(path)
    with progress.spoken(1, sys.stderr):
        prepared = prepare(path, target, **options)
        prepared.require_predictor(predictor)
    with loading():
        from .learn import learn_prepared
        from .page import write_page
    with progress.spoken(1, sys.stderr):
        outcome = learn_prepared(prepared, predictor, effort=effort, seed=seed)
        progress.now(f"writing {output}")
        outcome.model.save(output, overwrite=overwrite)
        write_page(outcome, path, output / "report.html")
    return str(outcome)


def predict(
    folder: Path, path: Path, output: Path | None, coverage: float | None, *, overwrite: bool
) -> str:
    """Write the predictions of a file, and return a line on them."""
    require_extra("pandas")
    require_file(path)
    _require_model(folder, path)
    output = path.with_name(f"{path.stem}_predicted{path.suffix}") if output is None else output
    if not overwrite:
        require_new(output)
    if coverage is not None and not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1, as 0.95 does.")
    with loading():
        from .predict import predict_file
    with progress.spoken(1, sys.stderr):
        count = predict_file(folder, path, output, coverage=coverage, overwrite=overwrite)
    return f"{count:,} rows: {output}"


def _require_model(folder: Path, path: Path) -> None:
    """Raise unless a folder holds a model of a table, and a file the columns that it needs."""
    file, remedy = folder / "structure.json", "Give a folder that gpflow-gvi learn wrote."
    if not file.exists():
        what = "holds no model" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"{folder} {what}. {remedy}")
    kind, used = None, []
    with contextlib.suppress(ValueError, KeyError, TypeError):  # `load` says what is wrong then
        root = json.loads(file.read_text("utf-8"))["root"]
        kind = root["class"].rpartition(":")[2]
        columns = root["attributes"]["columns"]["fields"]
        used = [*columns["numbers"]["items"], *columns["categories"]["items"]]
        used += [name for name, _ in columns["dates"]["items"]]
    if kind not in ("TableModel", None):
        raise TypeError(f"{folder} holds a {kind}, which is no model of a table. {remedy}")
    require_columns(used, header(path))

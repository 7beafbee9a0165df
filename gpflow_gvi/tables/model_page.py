"""The page on a model of a table: one file of HTML, with its pictures inside."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from .. import __version__
from .._core.files import new_file
from .learn import Outcome
from .pictures import pictures
from .requirements import required

MEANINGS = {
    "R²": "R², the part of the variance that is explained",
    "mae": "MAE (mean absolute error)",
    "rmse": "RMSE (root mean squared error)",
    "nll": "NLL (mean negative log density; less is better)",
    "coverage of 90 %": "coverage of 90 % intervals",
    "width of these": "mean width of these intervals",
    "brier": "Brier score (less is better)",
    "ece": "ECE (expected calibration error)",
}
"""The names of the scores."""

PARTS = {
    "model": "model",
    "kernel of P": "kernel of the Gaussian process",
    "mean of P": "what it is around",
    "inducing points": "inducing points",
    "likelihood": "noise",
    "Q": "variational process",
    "tempered by": "variance multiplied by (tempering)",
    "mixture of": "mixture",
    "NLL on rows not seen": "NLL of rows left out, while it was learned",
    "NLL without inputs": "NLL of these by the baseline, the training mean",
}
"""Plain words for the facts of a summary; others have their own names."""


def write_page(outcome: Outcome, source: Path, page: Path) -> None:
    """Write the page on what was learned from the file `source`."""
    jinja2 = required("jinja2")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    model, summary = outcome.model, outcome.model.learned_.summary()
    text = environment.from_string(template).render(
        title=f"{model.target}, from {source.name}",
        outcome=outcome,
        columns=model.columns,
        classes=None if model.classes_ is None else [str(label) for label in model.classes_],
        summary=summary,
        parts={PARTS.get(name, name): value for name, value in summary.facts.items()},
        pictures=pictures(outcome),
        meanings=MEANINGS,
        version=__version__,
    )
    with new_file(page) as stream:
        stream.write(text.encode())

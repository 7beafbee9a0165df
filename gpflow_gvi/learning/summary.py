"""What was learned, to look at and to keep: a summary, pictures, a folder."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from .._core import plugins
from .._core.names import kernel_name, mean_name
from .._core.progress import Stage
from ..covariances import Tempered
from ..likelihoods import are_labels, degrees_of_freedom, has_constant_noise, is_gaussian

if TYPE_CHECKING:
    from .learned import Learned

Kind = TypeVar("Kind", bound="Presented")

UNSEEN = ", rows not seen"
"""What a stage is called that says how a candidate predicts these."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """A summary of a `Learned`, which prints as a table."""

    facts: dict[str, str]
    """What the model is made of, and how it was found."""
    candidates: list[Stage]
    """The candidates for P that were compared, the best first; `nll` is the negative log density of
    a row given the others, in original units."""
    judged: list[Stage]
    """Candidates that were fitted without the rows that they predict, the best first, with
    `nll_unseen`, in original units, and their `weight` in what predicts."""

    @classmethod
    def of(cls, learned: Learned) -> Summary:
        """Return the summary."""
        P, model = learned.regulariser, learned.model
        stages = () if learned.record is None else learned.record.stages
        varying = is_gaussian(P.likelihood) and not has_constant_noise(P.likelihood)
        r = model.variational.kernel
        factor = next((k.factor for k in (r, *r.submodules) if isinstance(k, Tempered)), None)
        facts = {
            "model": f"{type(model).__name__}, λ = {model.divergence_weight:g}, "
            f"{model.num_data} rows, {math.prod(learned.inputs.input_shape)} features",
            "kernel of P": kernel_name(P.prior.kernel),
            "mean of P": mean_name(P.prior.mean_function),
            "inducing points": f"{len(P.inducing_points)}",
            "likelihood": _noise(learned, varying),
            "Q": _training(learned, stages),
            "tempered by": "1" if factor is None else _numbers(np.asarray(factor)),
        }
        if len(learned.models) > 1:
            facts["mixture of"] = f"{len(learned.models)} models; the one above weighs most"
        facts |= _rows(stages)
        if learned.outliers is not None:
            facts["outliers"] = f"{len(learned.outliers.rows)} rows, left out"
        for stage in stages:
            if "nll_before" in stage.facts:
                before, after = stage.facts["nll_before"], stage.facts["nll_after"]
                facts["NLL by tempering"] = f"{before:.4g} → {after:.4g}, {stage.what[10:]}"
        if learned.record is not None:
            facts["fitted in"] = f"{learned.record.seconds:.1f} s"
        return cls(facts, _sorted(stages, "nll"), _sorted(stages, "nll_unseen"))

    @property
    def taken(self) -> list[Stage]:
        """The candidates that predict, among those compared last."""
        if self.judged:
            return [stage for stage in self.judged if float(stage.facts["weight"]) > 0.0]
        return self.candidates[:1]

    @property
    def line(self) -> str:
        """The most important facts in a line."""
        keys = ("model", "kernel of P", "mean of P", "likelihood")
        model, kernel, mean, likelihood = (self.facts[key] for key in keys)
        M, factor = self.facts["inducing points"], self.facts["tempered by"]
        around = "" if mean == "zero" else f" around {mean}"
        return f"{model}; {kernel}{around}, M = {M}; {likelihood}; tempered by {factor}"

    def __str__(self) -> str:
        """Return the table."""
        width = max(map(len, self.facts))
        lines = [f"{name:<{width}}  {value}" for name, value in self.facts.items()]
        of_judged = [
            f"{float(stage.facts['nll_unseen']):>9.3f}{float(stage.facts['weight']):>9.2f}"
            for stage in self.judged
        ]
        of_candidates = [
            f"{float(stage.facts['nll']):>9.3f}{stage.seconds:>9.1f}"
            + "  taken" * (stage in self.taken)
            for stage in self.candidates
        ]
        if self.candidates:
            title = "fitted without the rows that it predicts"
            lines += _table(title, "weight", self.judged, of_judged)
            title = "compared for P, each row given all others"
            lines += _table(title, "seconds", self.candidates, of_candidates)
        return "\n".join(lines)

    __repr__ = __str__


def _sorted(stages: Sequence[Stage], fact: str) -> list[Stage]:
    """Return the stages with a fact, the smallest first."""
    found = [stage for stage in stages if fact in stage.facts]
    return sorted(found, key=lambda stage: float(stage.facts[fact]))


def _table(title: str, head: str, stages: list[Stage], cells: list[str]) -> list[str]:
    """Return the lines of a table of candidates; none without any."""
    names = [stage.what[3:].removesuffix(UNSEEN) for stage in stages]
    width = max(map(len, (title, *names)))
    lines = [f"{name:<{width}}{of_name}" for name, of_name in zip(names, cells, strict=True)]
    return ["", f"{title:<{width}}{'NLL':>9}{head:>9}", *lines] if lines else []


def _rows(stages: Any) -> dict[str, str]:
    """Return facts about the rows, and the NLL of fits that have not seen them."""
    facts: dict[str, str] = {}
    found = {name: value for stage in stages for name, value in stage.facts.items()}
    if "repeated" in found:
        share = f"{found['repeated']} rows repeat the inputs of others"
        copies = f", {found['copies']} are copies and count once" if "copies" in found else ""
        how = "each row is left out alone" if "apart" in found else "they are left out together"
        facts["repeats"] = f"{share}: {how}{copies}"
    if "unused_columns" in found:
        facts["unused"] = f"{found['unused_columns']} columns of X are constant or copies of others"
    if "gross" in found:
        facts["gross values"] = f"{found['gross']} rows with one are left out"
    if "promised" in found:
        facts["NLL on rows not seen"] = f"{float(found['promised']):.3f}"
    if np.isfinite(without := float(found.get("of_constant", np.inf))):
        facts["NLL without inputs"] = f"{without:.3f}"
    if "nll_corrected" in found:
        before, after = float(found["nll_by_temperature"]), float(found["nll_corrected"])
        left_out = "" if after < before else ", which is left out"
        facts["NLL by correction"] = f"{before:.4g} → {after:.4g}{left_out}"
    return facts


def _noise(learned: Learned, varying: bool) -> str:
    likelihood = learned.likelihood
    if not is_gaussian(likelihood):
        return type(likelihood).__name__
    df = degrees_of_freedom(likelihood)
    kind = "Gaussian" if df is None else f"Student's t, {_numbers(df)} degrees of freedom"
    of_logs = learned.outputs.linear is not learned.outputs
    if varying:
        return kind + " of log y" * of_logs + ", its variance depends on x"
    sd = np.sqrt(np.asarray(likelihood.variance)) * learned.outputs.linear.scale
    return f"{kind}, sd {_numbers(sd)} " + ("of log y" if of_logs else "in units of y")


def _training(learned: Learned, stages: Any) -> str:
    for stage in stages:
        if "best" in stage.facts:
            epochs, best = int(stage.facts["epochs"]), stage.facts["best"]
            return f"trained for {epochs} epoch{'s' * (epochs != 1)}, the best was {best}"
    epochs = len(next(iter(learned.history.values()), ()))
    return f"trained for {epochs} epochs" if epochs else "untrained (P is already optimal)"


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in np.unique(np.round(np.ravel(values), 12)))


class Presented:
    """The summary, the pictures and the folder of a `Learned`."""

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to a folder, without pickle, for `gpflow_gvi.load`."""
        plugins.registered("saving").save(self, folder, overwrite=overwrite)

    @classmethod
    def load(
        cls: type[Kind],
        folder: str | os.PathLike[str],
        *,
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Kind:
        """Read what `save` wrote."""
        loaded = plugins.registered("saving").load(folder, custom_objects=custom_objects)
        if not isinstance(loaded, cls):
            raise TypeError(f"folder {folder} holds a {type(loaded).__name__}, not a Learned.")
        return loaded

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """The names of the columns that were learned from, as of scikit-learn: only if any had."""
        inputs = cast(Any, self).inputs
        names: tuple[str, ...] | None = getattr(inputs, "inputs", inputs).names
        if names is None:
            raise AttributeError("feature_names_in_: what was learned from had no names.")
        return names

    def __repr__(self) -> str:
        """Return one line about it."""
        return f"<Learned {Summary.of(cast(Any, self)).line}>"

    def summary(self) -> Summary:
        """Return a summary of the candidates and the best of them; printed, it is a table."""
        return Summary.of(cast(Any, self))

    def plot(self, X: Any = None, y: Any = None, *, ax: Any = None, **options: Any) -> Any:
        """Draw f: a curve of one feature, maps of two, the partial dependence on each of several.

        :param X: rows [N, D], in original units; by default the inducing points.
        :param y: observations there, which are drawn as well.
        :param ax: Axes of Matplotlib to draw on.
        :param options: those of `plots.CurveDisplay`, `plots.MapDisplay` or
            `plots.PartialDependenceDisplay`.
        """
        return plugins.registered("plots").draw(self, X, y, ax=ax, **options)

    def plot_calibration(self, X: Any, y: Any, *, ax: Any = None, **options: Any) -> Any:
        """Draw the reliability of quantiles, or of probabilities, for rows that were not seen."""
        plots = plugins.registered("plots")
        kind: Any = plots.QuantileDisplay
        if are_labels(cast(Any, self).likelihood):
            kind = plots.ReliabilityDisplay
        return kind.from_estimator(self, X, y, ax=ax, **options).ax_

    def plot_history(self, *, ax: Any = None) -> Any:
        """Draw the training of Q epoch by epoch; `summary` has the scores of P."""
        return plugins.registered("plots").HistoryDisplay.from_estimator(self, ax=ax).ax_

    def plot_relevance(
        self, X: Any = None, y: Any = None, *, ax: Any = None, **options: Any
    ) -> Any:
        """Draw how much each feature matters: to P, or to predictions of rows that are given."""
        plots = plugins.registered("plots")
        return plots.RelevanceDisplay.from_estimator(self, X, y, ax=ax, **options).ax_

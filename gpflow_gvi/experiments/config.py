"""An experiment: all that a run needs to know, and nothing that cannot go together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import model_validator

from ..learning import Settings
from . import thesis_format
from .data_sets import UCI, Data, DataSet, GivenSplit, Split
from .parts.base import Flag, Omitted, Part, Whole, impossible, kinds
from .parts.layers import require_images
from .parts.models import Model
from .parts.objective import Divergence, Likelihood, Loss, is_random
from .parts.regulariser import Regulariser
from .parts.training import (
    BatchesTraining,
    Calibration,
    HeldOutTempering,
    Optimiser,
    Tempering,
    Training,
)
from .parts.variational import Covariance, Mean
from .reading import ConfigError, Document

OF_Q = ("mean", "covariance", "divergence", "loss", "optimiser", "training")
"""What says how Q is trained, so that it is where any of them is given."""

OF_GVI = ("likelihood", "regulariser", *OF_Q, "train_q", "tempering", "refit", "calibration")
"""What describes the model of this package, and none of the others."""

OF_REGULARISER = ("data", "split", "standardise", "likelihood", "regulariser")
"""What an experiment takes from the file of another one's regulariser."""


class Experiment(Part):
    """A run, described completely. Only `data` has no default; the others are those of `learn`."""

    data: Data
    split: Split = GivenSplit()
    standardise: Flag = Settings.standardise
    """Whether the model works in units in which columns have mean zero and deviation one."""
    model: Model = "gvi"
    """If it is not gvi, leave out the parts from likelihood to calibration."""
    likelihood: Likelihood = "gaussian"
    regulariser: Regulariser = Regulariser()
    mean: Mean = "recipe"
    covariance: Covariance = "cholesky"
    divergence: Divergence = "projected_renyi"
    loss: Loss = "log_loss"
    optimiser: Optimiser = "adam"
    training: Training = BatchesTraining()
    train_q: Flag | None = None
    """Whether Q is trained; by default if its mean, its covariance, the divergence, the loss, the
    optimiser or the training is given."""
    tempering: Tempering = HeldOutTempering()
    refit: Flag = Settings.refit
    """Whether rows that were held out for validation join the others in the end."""
    calibration: Calibration = Omitted()
    seed: Whole = Settings.seed

    @model_validator(mode="before")
    @classmethod
    def _with_defaults_of_the_data(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        data = value.get("data")
        kind = data.get("kind") if isinstance(data, Mapping) else getattr(data, "kind", data)
        for data_set in DataSet.__subclasses__():
            if kind in kinds(data_set):
                return {**data_set.defaults, **value}
        return value

    @model_validator(mode="after")
    def _possible(self) -> Experiment:
        if self.train_q is None:  # not among the keys that are given, so that a sweep may add them
            object.__setattr__(self, "train_q", bool(self.model_fields_set & set(OF_Q)))
        self._require_parts_with_an_effect()
        self._require_a_fitting_split()
        self._require_a_fitting_likelihood()
        self._require_held_out_rows()
        self._require_what_lbfgs_takes()
        self._require_a_finite_divergence()
        P = self.regulariser
        if P.evidence.kind == "inducing" and P.select.kind == "kmeans":
            raise impossible(
                "regulariser.select",
                "kmeans",
                "its points are no rows, so nothing was observed at them. Take greedy_variance, "
                "uniform, or evidence: data.",
            )
        if self.data.input_shape is None:
            for name in ("model", "regulariser", "mean", "covariance"):
                require_images(getattr(self, name), name)
        return self

    def settings(self) -> dict[str, Any]:
        """Return all settings, with the defaults, from which the experiment can be made again."""
        others = set() if self.model.kind == "gvi" else set(OF_GVI)
        if self.training.kind == "lbfgs":
            others.add("optimiser")
        return self.model_dump(mode="json", exclude=others)

    def graph_settings(self) -> str:
        """Return the settings that are in the graph of the model; others change what it reads.

        A constant learning rate is a variable; the numbers of a schedule are in the graph.
        """
        others: dict[str, Any] = {"data": True, "split": True, "seed": True}
        if self.optimiser.schedule == "constant":
            others["optimiser"] = {"learning_rate"}
        return self.model_dump_json(exclude=others)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let other processes receive the settings, which make the classes of the parts anew."""
        return type(self).model_validate, (self.settings(),)

    def _require_parts_with_an_effect(self) -> None:
        if self.model.kind != "gvi":
            if self.data.of_classes:
                raise impossible("model", self.model.kind, "it is for real numbers; take gvi.")
            for name in OF_GVI:
                if name in self.model_fields_set:
                    reason = f"it is for model: gvi, but model is {self.model.kind}. Leave it out."
                    part = getattr(self, name)
                    raise impossible(name, getattr(part, "kind", part), reason)
        if "train_q" in self.model_fields_set and not self.train_q:
            default = Experiment.model_validate({"data": self.data})
            for name in OF_Q:
                if getattr(self, name) != getattr(default, name):
                    reason = f"{name} says how Q is trained. Leave out one of them."
                    raise impossible("train_q", False, reason)
        P = self.regulariser
        if P.noise is not None and self.likelihood.kind != "gaussian":
            reason = f"likelihood is {self.likelihood.kind}, which has none; leave it out."
            raise impossible("regulariser.noise", P.noise, reason)
        if P.evidence.kind == "inducing":
            without = "with evidence: inducing there is none; take evidence: data."
        elif P.mean is not None:
            without = f"with mean: {P.mean.kind} there is none; leave out one of them."
        else:
            return
        for name, value in (("predictors", "recipe"), ("noise", "auto"), ("noise", "varying")):
            if getattr(P, name) == value:
                raise impossible(f"regulariser.{name}", value, without)

    def _require_a_fitting_split(self) -> None:
        data, split = self.data, self.split
        if not isinstance(split, GivenSplit):
            return
        if not data.has_split:
            raise impossible("split", "given", f"{data.kind} has no split; take random.")
        if split.index and not isinstance(data, UCI):
            raise impossible("split.index", split.index, f"{data.kind} has split 0 only.")
        if data.has_validation and split.validation is not None:
            raise impossible(
                "split.validation",
                split.validation,
                f"{data.kind} names the rows for validation; leave it out.",
            )

    def _require_a_fitting_likelihood(self) -> None:
        kind = self.likelihood.kind
        if self.data.of_classes is not None and self.data.of_classes == (kind == "gaussian"):
            remedy = "take multi_class or softmax" if self.data.of_classes else "take gaussian"
            what = "labels of ten classes" if self.data.of_classes else "real numbers"
            raise impossible("likelihood", kind, f"{self.data.kind} has {what}; {remedy}.")
        if self.data.of_classes and kind == "bernoulli":
            raise impossible("likelihood", kind, "there are ten classes; take multi_class.")
        if self.loss.kind in ("beta_loss", "gamma_loss") and kind in ("multi_class", "softmax"):
            raise impossible(
                "loss", self.loss.kind, f"it is not known for {kind}; take predictive_log_loss."
            )

    def _require_held_out_rows(self) -> None:
        if self.split.validation != 0.0 or not self.train_q:
            return
        for path, part in (
            ("training.early_stopping", getattr(self.training, "early_stopping", Omitted())),
            ("tempering", self.tempering),
        ):
            if part.kind == "held_out":
                raise impossible(
                    path, "held_out", "split.validation is 0; raise it, or take none here."
                )

    def _require_what_lbfgs_takes(self) -> None:
        if self.training.kind != "lbfgs":
            return
        if "optimiser" in self.model_fields_set:
            reason = "it is for training: batches, but training is lbfgs. Leave it out."
            raise impossible("optimiser", self.optimiser.kind, reason)
        context = getattr(self.divergence, "context", None)
        if context is not None and is_random(context):
            raise impossible(
                "divergence.context",
                context.kind,
                "its points change at each evaluation, which training: lbfgs cannot take. Take "
                "halton_box, or inputs without num_points.",
            )

    def _require_a_finite_divergence(self) -> None:
        if self.divergence.kind != "inducing_kl":
            return
        for path, value, allowed in (
            ("regulariser.mode", self.regulariser.mode, ("prior",)),
            ("mean", self.mean.kind, ("inducing",)),
            ("covariance", self.covariance.kind, ("cholesky", "diagonal")),
        ):
            if value not in allowed:
                raise impossible(
                    path,
                    value,
                    f"with divergence: inducing_kl it must be {' or '.join(allowed)}, or KL is "
                    "infinite. Other divergences, as projected_kl, take any.",
                )


def read(
    path: str | Path, *, data: str | None = None, regulariser: str | Path | None = None
) -> Experiment:
    """Return the experiment that a YAML file describes, in this format or in the thesis's.

    :param path: the file.
    :param data: YAML of the part `data` to take instead, as "yacht" or "{kind: curve, number: 3}".
    :param regulariser: a file whose data, split and regulariser are taken instead.
    """
    document = Document.read(path)
    if "base" in document.value:
        raise ConfigError(f"{path} is the file of a sweep: gpflow-gvi sweep {path}.")
    of_data = None if data is None else Document(data, "--data").value
    if data is not None and of_data is None:
        raise ConfigError(f"data is {data!r}, which is empty; pass YAML of the data, as yacht.")
    if regulariser is not None:
        other = read(regulariser, data=data).model_dump(mode="json")
        replaced = {name: other[name] for name in OF_REGULARISER}
    else:
        replaced = {} if of_data is None else {"data": of_data}
    if thesis_format.recognises(document):
        return document.validated(Experiment, thesis_format.translated(document, replaced))
    return document.validated(Experiment, {**document.value, **replaced})

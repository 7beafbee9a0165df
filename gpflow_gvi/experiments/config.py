"""An experiment: all that a run needs to know, and nothing that cannot go together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import model_validator

from ..learning import RegulariserSettings, Settings
from .data_sets import UCI, Data, DataSet, GivenSplit, Split
from .parts.layer_kinds import require_images
from .parts.models import Model
from .parts.objective import Covariance, Divergence, Likelihood, Loss, Mean
from .parts.part import Flag, Omitted, Part, Whole, impossible, kinds
from .parts.regulariser import Regulariser
from .parts.training import (
    BatchesTraining,
    Calibration,
    Optimiser,
    Tempering,
    Training,
)
from .reading import ConfigError, Document

OF_Q = ("mean", "covariance", "divergence", "loss", "optimiser", "training")
"""What says how Q is trained, so that it is where any of them is given."""

OF_GVI = ("likelihood", "regulariser", *OF_Q, "train_q", "tempering", "refit", "calibration")
"""What describes the model of this package, and none of the others."""


Conflicts: TypeAlias = "Iterator[tuple[str, Any, str]]"
"""Paths of what others do not allow, the values there, and the reasons."""


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
    tempering: Tempering = "held_out"
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
                return _completed(data_set.defaults, value)
        return value

    @model_validator(mode="after")
    def _possible(self) -> Experiment:
        if self.train_q is None:  # not among the keys that are given, so that a sweep may add them
            object.__setattr__(self, "train_q", bool(self.model_fields_set & set(OF_Q)))
        conflicts = (
            self._conflicts_with_the_model,
            self._conflicts_of_the_regulariser,
            self._conflicts_with_the_data,
            self._conflicts_of_the_training,
        )
        for path, value, reason in itertools.chain(*(found() for found in conflicts)):
            raise impossible(path, value, reason)
        if self.data.input_shape is None:
            for name in ("model", "regulariser", "mean", "covariance"):
                require_images(getattr(self, name), name)
        return self

    def build_regulariser(self) -> RegulariserSettings:
        """Return the settings of the fit of P, which depend on how far Q follows it."""
        return self.regulariser.build(
            is_default=not self.train_q,
            is_alone=bool(self.train_q) and self.mean.kind == "network",
            is_bounded=bool(self.train_q) and self.loss.build().is_bounded,
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of the parts that it has, with the defaults: they make it again."""
        others = set() if self.model.kind == "gvi" else set(OF_GVI)
        if not self.train_q:
            others.update(OF_Q)
        elif self.training.kind == "lbfgs":
            others.add("optimiser")
        return self.model_dump(mode="json", exclude=others)

    def as_yaml(self) -> str:
        """Return the settings as the text of a file."""
        return yaml.safe_dump(self.settings(), sort_keys=False, allow_unicode=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let other processes receive the settings, which make the classes of the parts anew."""
        return type(self).model_validate, (self.settings(),)

    def _conflicts_with_the_model(self) -> Conflicts:
        if self.model.kind != "gvi":
            if self.data.of_classes:
                yield "model", self.model.kind, "it is for real numbers; take gvi."
            reason = f"it is for model: gvi, but model is {self.model.kind}. Leave it out."
            for name in OF_GVI:
                if name in self.model_fields_set:
                    part = getattr(self, name)
                    yield name, getattr(part, "kind", part), reason
        if "train_q" in self.model_fields_set and not self.train_q:
            default = Experiment.model_validate({"data": self.data})
            for name in OF_Q:
                if getattr(self, name) != getattr(default, name):
                    yield "train_q", False, f"{name} says how Q is trained. Leave out one of them."

    def _conflicts_of_the_regulariser(self) -> Conflicts:
        P, likelihood = self.regulariser, self.likelihood.kind
        if P.noise is not None and likelihood != "gaussian":
            reason = f"likelihood is {likelihood}, which has none; leave it out."
            yield "regulariser.noise", P.noise, reason
        if P.starts > 1 and P.kernel.kind == "recipe":
            reason = "the recipe has starts of its own. Give another kernel, or leave it out."
            yield "regulariser.starts", P.starts, reason
        without = None
        if P.evidence.kind == "inducing":
            without = "with evidence: inducing there is none; take evidence: data."
        elif P.mean is not None:
            without = f"with mean: {P.mean.kind} there is none; leave out one of them."
        for name, value in (("predictors", "recipe"), ("noise", "auto"), ("noise", "varying")):
            if without and getattr(P, name) == value:
                yield f"regulariser.{name}", value, without
        if P.evidence.kind == "inducing" and P.select == "kmeans":
            reason = "its points are no rows, so nothing was observed at them. Take "
            yield "regulariser.select", "kmeans", f"{reason}greedy_variance, or evidence: data."

    def _conflicts_with_the_data(self) -> Conflicts:
        data, split, likelihood = self.data, self.split, self.likelihood.kind
        if isinstance(split, GivenSplit):
            if not data.has_split:
                yield "split", "given", f"{data.kind} has no split; take random."
            if split.index and not isinstance(data, UCI):
                yield "split.index", split.index, f"{data.kind} has split 0 only."
            if data.has_validation and split.validation is not None:
                reason = f"{data.kind} names the rows for validation; leave it out."
                yield "split.validation", split.validation, reason
        if data.of_classes is not None and data.of_classes == (likelihood == "gaussian"):
            remedy = "take multi_class or softmax" if data.of_classes else "take gaussian"
            what = "labels of ten classes" if data.of_classes else "real numbers"
            yield "likelihood", likelihood, f"{data.kind} has {what}; {remedy}."
        if data.input_shape and self.regulariser.kernel.kind == "recipe":
            reason = "it is for tables. Take squared_exponential with ard: false, or nngp."
            yield "regulariser.kernel", "recipe", reason
        if data.of_classes and likelihood == "bernoulli":
            yield "likelihood", likelihood, "there are ten classes; take multi_class."

    def _conflicts_of_the_training(self) -> Conflicts:
        held_out = {
            "training.early_stopping": getattr(self.training, "early_stopping", Omitted()).kind,
            "tempering": self.tempering,
        }
        for path, kind in held_out.items():
            if self.split.validation == 0.0 and self.train_q and kind == "held_out":
                yield path, "held_out", "split.validation is 0; raise it, or take none here."
        for name in ("beta", "gamma"):
            power = getattr(self.loss, name, 1.0)
            if power < 1.0 and self.likelihood.kind == "gaussian":
                ratio = f"{1.0 / (1.0 - power):.3g} times that of the noise. Take at least 1."
                reason = f"with Gaussian noise it is infinite where the variance of Q is {ratio}"
                yield f"loss.{name}", power, reason
        if self.training.kind == "lbfgs":
            if "optimiser" in self.model_fields_set:
                reason = "it is for training: batches, but training is lbfgs. Leave it out."
                yield "optimiser", self.optimiser.kind, reason
            context = getattr(self.divergence, "context", None)
            if context is not None and context.kind != "halton_box":
                reason = "its points change at each evaluation, which training: lbfgs cannot take. "
                yield "divergence.context", context.kind, f"{reason}Take halton_box."
        finite = {
            "regulariser.mode": (self.regulariser.mode, ("prior",)),
            "mean": (self.mean.kind, ("inducing",)),
            "covariance": (self.covariance.kind, ("cholesky", "diagonal")),
        }
        for path, (value, allowed) in finite.items():
            if self.divergence.kind == "inducing_kl" and value not in allowed:
                must = f"with divergence: inducing_kl it must be {' or '.join(allowed)}"
                others = "Other divergences, as projected_kl, take any."
                yield path, value, f"{must}, or KL is infinite. {others}"


def _completed(default: Any, given: Any) -> Any:
    """Return a given value completed by a default; a part that says its kind is complete."""
    if isinstance(default, str):  # the short form of a part
        default = {"kind": default}
    if not isinstance(default, Mapping) or not isinstance(given, Mapping) or "kind" in given:
        return given
    parts = {name: _completed(default.get(name), part) for name, part in given.items()}
    return {**default, **parts}


def read(path: str | Path) -> Experiment:
    """Return the experiment that a YAML file describes."""
    document = Document.read(path)
    if "base" in document.value:
        raise ConfigError(f"{path} is the file of a sweep: gpflow-gvi sweep {path}.")
    return document.validated(Experiment)

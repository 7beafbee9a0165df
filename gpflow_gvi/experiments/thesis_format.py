"""The files of the thesis's own experiments, read as experiments of this package.

Wu (2023), "Generalised variational inference for Gaussian processes", appendix "Example YAML
Configurations". There are two kinds: of a regulariser, and of an approximate Gaussian process that
refers to one. Both refer to further files by hashes, so the user names these. The documentation
lists the differences between the thesis's code and this package.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from .parts import Count, Part, Positive, Whole

if TYPE_CHECKING:
    from .reading import Document

logger = logging.getLogger("gpflow_gvi")

OF_REGULARISER = ("data", "split", "standardise", "likelihood", "regulariser")
"""What an approximate Gaussian process takes from the file of its regulariser."""


class Trainer(Part):
    """How something is trained."""

    batch_drop_last: Literal[False]
    batch_shuffle: Literal[True]
    batch_size: Count
    learning_rate: Positive
    number_of_epochs: Count
    optimiser_schema: Literal["adam"]
    seed: Whole


class Features(Part):
    """Arguments of a dense layer."""

    features: Count


class Layer(Part):
    """A layer: dense, or an activation."""

    layer_kwargs: Features | None
    layer_schema: Literal["dense", "relu", "tanh"]


class Network(Part):
    """Layers by their names, in order."""

    input_shape: tuple[Count, ...]
    layers: dict[str, Layer]
    seed: Whole = 0

    def translated(self) -> list[dict[str, Any]]:
        """Return the dense layers, each with the activation that follows it."""
        layers: list[dict[str, Any]] = []
        for layer in self.layers.values():
            if layer.layer_kwargs is not None:
                units = layer.layer_kwargs.features
                layers.append({"kind": "dense", "units": units, "activation": "linear"})
            elif layers:
                layers[-1]["activation"] = layer.layer_schema
        return layers


class NNGPKernel(Part):
    """A network of infinite width."""

    kernel_kwargs: Network
    kernel_parameters: None
    kernel_schema: Literal["nngp"]


class InducingPoints(Part):
    """factor · N^(1/power) points of greatest conditional variance."""

    inducing_points_factor: Positive
    inducing_points_power: Positive
    inducing_points_selector_schema: Literal["conditional_variance"]


class RegulariserFile(Part):
    """A regulariser and how it is fitted."""

    data_name: str
    empirical_risk_break_condition: float
    empirical_risk_schema: Literal["negative_log_likelihood"]
    inducing_points: InducingPoints
    kernel: NNGPKernel
    number_of_iterations: Count
    save_checkpoint_frequency: Count
    trainer_settings: Trainer

    def translated(self) -> dict[str, Any]:
        """Return an experiment without data, in which Q is the regulariser itself."""
        trainer = self.trainer_settings
        return {
            "regulariser": {
                "kernel": {"kind": "nngp", "layers": self.kernel.kernel_kwargs.translated()},
                "evidence": "inducing",
                "inducing": {
                    "factor": self.inducing_points.inducing_points_factor,
                    "power": self.inducing_points.inducing_points_power,
                },
                "max_rounds": self.number_of_iterations,
                "minimise": {
                    "kind": "adam",
                    "learning_rate": trainer.learning_rate,
                    "steps": trainer.number_of_epochs,
                },
            },
            "mean": "regulariser",
            "covariance": "regulariser",
            "training": {"epochs": 0},
            "refit": False,
            "seed": trainer.seed,
        }


class Jitter(Part):
    """What is added to diagonals; this package chooses it."""

    diagonal_regularisation: float
    is_diagonal_regularisation_absolute_scale: bool


class SparsePosteriorKernel(Part):
    """A variational covariance."""

    kernel_kwargs: Jitter
    kernel_parameters: None
    kernel_schema: Literal["sparse_posterior", "fixed_sparse_posterior"]


class MeanArguments(Part):
    """The network of a mean; its last layer gives the outputs."""

    nn_function_kwargs: Network
    number_output_dimensions: Count


class CustomMean(Part):
    """A variational mean."""

    mean_kwargs: MeanArguments
    mean_parameters: None
    mean_schema: Literal["custom"]


class Mode(Part):
    """Which process the regulariser is."""

    mode: Literal["prior", "posterior"]


class RenyiMode(Mode):
    """The same, with the order of Rényi's divergence."""

    alpha: Positive = 0.5


class Renyi(Part):
    """Rényi's divergence of marginals."""

    regularisation_kwargs: RenyiMode
    regularisation_schema: Literal["projected_renyi"]


class Symmetric(Part):
    """The divergences of marginals that need no order."""

    regularisation_kwargs: Mode
    regularisation_schema: Literal["projected_bhattacharyya", "projected_hellinger"]


class ApproximateFile(Part):
    """An approximate Gaussian process and how it is trained."""

    empirical_risk_schema: Literal["negative_log_likelihood"]
    kernel: SparsePosteriorKernel
    mean: CustomMean
    reference_name: str
    regularisation: Annotated[Renyi | Symmetric, Field(discriminator="regularisation_schema")]
    save_checkpoint_frequency: Count
    trainer_settings: Trainer

    def translated(self, of_regulariser: dict[str, Any]) -> dict[str, Any]:
        """Return an experiment with what the regulariser's brings along."""
        trainer, arguments = self.trainer_settings, self.regularisation.regularisation_kwargs
        hidden = self.mean.mean_kwargs.nn_function_kwargs.translated()[:-1]
        divergence = {"kind": self.regularisation.regularisation_schema, "weight": 1.0}
        if isinstance(arguments, RenyiMode):
            divergence["alpha"] = arguments.alpha
        return {
            **of_regulariser,
            "regulariser": {**of_regulariser["regulariser"], "mode": arguments.mode},
            "mean": {"kind": "network", "layers": hidden, "readout": "random"},
            "covariance": self.kernel.kernel_schema,
            "divergence": divergence,
            "loss": "predictive_log_loss",
            "optimiser": {
                "kind": trainer.optimiser_schema,
                "learning_rate": trainer.learning_rate,
                "schedule": "constant",
            },
            "training": {
                "epochs": trainer.number_of_epochs,
                "batch_size": trainer.batch_size,
                "steps_per_epoch": None,
                "early_stopping": "none",
            },
            "refit": False,
            "seed": trainer.seed,
        }


def recognises(document: Document) -> bool:
    """Return whether a document is a file of the thesis's."""
    return bool({"data_name", "reference_name"} & set(document.value))


def translated(
    document: Document, *, data: Any = None, regulariser: str | Path | None = None
) -> dict[str, Any]:
    """Return the values of an experiment.

    :param document: a file of the thesis's.
    :param data: the part `data` of the experiment, which `data_name` does not tell.
    :param regulariser: the file of the regulariser, which `reference_name` does not tell.
    """
    from .config import read
    from .reading import ConfigError

    logger.warning(
        "%s is in the thesis's format: jitter, checkpoints, break conditions and the seeds of "
        "networks are handled by this package.",
        document.source,
    )
    if "data_name" in document.value:
        values = document.validated(RegulariserFile).translated()
        if data is None:
            raise ConfigError(
                f"{document.source}: data_name is {document.value['data_name']!r}, a file of the "
                "thesis's. Say which data these are, as --data '{kind: curve, number: 0}'."
            )
        return {"data": data, **values}
    approximate = document.validated(ApproximateFile)
    if regulariser is None:
        raise ConfigError(
            f"{document.source}: reference_name is {approximate.reference_name!r}, a file of the "
            "thesis's. Give the file of its regulariser, as --regulariser regulariser.yaml."
        )
    text = None if data is None else json.dumps(data)  # which is YAML
    other = read(regulariser, data=text).model_dump(mode="json")
    return approximate.translated({name: other[name] for name in OF_REGULARISER})

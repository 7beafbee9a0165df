"""The files of the thesis's own experiments, read as experiments of this package.

Wu (2023), "Generalised variational inference for Gaussian processes", appendix "Example YAML
Configurations". There are two kinds: of a regulariser, and of an approximate Gaussian process that
refers to one. Both refer to further files by hashes, so the user names these. The documentation
lists the differences between the thesis's code and this package.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

from pydantic import Field

from .parts.base import Count, Part, Positive, Whole
from .reading import ConfigError, Document

logger = logging.getLogger("gpflow_gvi")


class _Features(Part):
    features: Count


class _Layer(Part):
    layer_kwargs: _Features | None
    layer_schema: Literal["dense", "relu", "tanh"]


class _Network(Part):
    input_shape: tuple[Count, ...]
    layers: dict[str, _Layer]
    seed: Whole = 0


class _Trainer(Part):
    batch_drop_last: Literal[False]
    batch_shuffle: Literal[True]
    batch_size: Count
    learning_rate: Positive
    number_of_epochs: Count
    optimiser_schema: Literal["adam"]
    seed: Whole


class _InducingPoints(Part):
    inducing_points_factor: Positive
    inducing_points_power: Positive
    inducing_points_selector_schema: Literal["conditional_variance"]


class _NNGP(Part):
    kernel_kwargs: _Network
    kernel_parameters: None
    kernel_schema: Literal["nngp"]


class RegulariserFile(Part):
    """A regulariser and how it is fitted."""

    data_name: str
    empirical_risk_break_condition: float
    empirical_risk_schema: Literal["negative_log_likelihood"]
    inducing_points: _InducingPoints
    kernel: _NNGP
    number_of_iterations: Count
    save_checkpoint_frequency: Count
    trainer_settings: _Trainer


class _Mode(Part):
    mode: Literal["prior", "posterior"]


class _ModeAndOrder(_Mode):
    alpha: Positive = 0.5


class _Renyi(Part):
    regularisation_kwargs: _ModeAndOrder
    regularisation_schema: Literal["projected_renyi"]


class _WithoutOrder(Part):
    regularisation_kwargs: _Mode
    regularisation_schema: Literal["projected_bhattacharyya", "projected_hellinger"]


class _Diagonal(Part):  # this package chooses what is added to diagonals
    diagonal_regularisation: float
    is_diagonal_regularisation_absolute_scale: bool


class _SparsePosterior(Part):
    kernel_kwargs: _Diagonal
    kernel_parameters: None
    kernel_schema: Literal["sparse_posterior", "fixed_sparse_posterior"]


class _NetworkAndOutputs(Part):
    nn_function_kwargs: _Network
    number_output_dimensions: Count


class _Mean(Part):
    mean_kwargs: _NetworkAndOutputs
    mean_parameters: None
    mean_schema: Literal["custom"]


class ApproximateFile(Part):
    """An approximate Gaussian process and how it is trained."""

    empirical_risk_schema: Literal["negative_log_likelihood"]
    kernel: _SparsePosterior
    mean: _Mean
    reference_name: str
    regularisation: Annotated[_Renyi | _WithoutOrder, Field(discriminator="regularisation_schema")]
    save_checkpoint_frequency: Count
    trainer_settings: _Trainer


def _layers(network: _Network) -> list[dict[str, Any]]:
    """Return the dense layers, each with the activation that follows it."""
    layers: list[dict[str, Any]] = []
    for layer in network.layers.values():
        if layer.layer_kwargs is not None:
            units = layer.layer_kwargs.features
            layers.append({"kind": "dense", "units": units, "activation": "linear"})
        elif layers:
            layers[-1]["activation"] = layer.layer_schema
    return layers


def _of_regulariser(file: RegulariserFile) -> dict[str, Any]:
    """Return an experiment without data, in which Q is the regulariser itself."""
    trainer, points = file.trainer_settings, file.inducing_points
    return {
        "regulariser": {
            "kernel": {"kind": "nngp", "layers": _layers(file.kernel.kernel_kwargs)},
            "evidence": "inducing",
            "inducing": {
                "factor": points.inducing_points_factor,
                "power": points.inducing_points_power,
            },
            "max_rounds": file.number_of_iterations,
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


def _of_approximate(file: ApproximateFile, of_regulariser: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment with the regulariser's data, split and kernel."""
    trainer = file.trainer_settings
    divergence = file.regularisation.regularisation_kwargs.model_dump()
    mode = divergence.pop("mode")
    # The last layer of the network gives the outputs, as the readout does here.
    layers = _layers(file.mean.mean_kwargs.nn_function_kwargs)[:-1]
    return {
        **of_regulariser,
        "regulariser": {**of_regulariser["regulariser"], "mode": mode},
        "mean": {"kind": "network", "layers": layers, "readout": "random"},
        "covariance": file.kernel.kernel_schema,
        "divergence": {
            "kind": file.regularisation.regularisation_schema,
            "weight": 1.0,
            **divergence,
        },
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
    """Return True if a document is in the format of the thesis."""
    return bool({"data_name", "reference_name"} & set(document.value))


def translated(document: Document, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an experiment.

    :param document: a file of the thesis's.
    :param given: those that the file does not tell: of a regulariser `data`, as `data_name` is a
        hash; of an approximate process those of its regulariser, as `reference_name` is one.
    """
    logger.warning(
        "%s is in the thesis's format: jitter, checkpoints, break conditions and the seeds of "
        "networks are handled by this package.",
        document.source,
    )
    if "data_name" in document.value:
        file = document.validated(RegulariserFile)
        if "data" not in given:
            raise ConfigError(
                f"{document.source}: data_name is {file.data_name!r}, a file of the "
                "thesis's. Say which data these are, as --data '{kind: curve, number: 0}'."
            )
        return {"data": given["data"], **_of_regulariser(file)}
    approximate = document.validated(ApproximateFile)
    if "regulariser" not in given:
        raise ConfigError(
            f"{document.source}: reference_name is {approximate.reference_name!r}, a file of "
            "the thesis's. Give the file of its regulariser, as --regulariser regulariser.yaml."
        )
    return _of_approximate(approximate, given)

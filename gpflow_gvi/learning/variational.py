"""The parts of Q and of its objective by their names, as `learn` and experiments have them.

A mean or a covariance is a function of what Q starts from (`Start`): P, inducing points, the data.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import pkgutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import short_repr
from .start import InducingPlusNetwork, Start, inducing_mean, network_mean

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction
    from gpflow.kernels import Kernel
    from gpflow.likelihoods import Likelihood

SUPPLIED: dict[str, Callable[[Start], Any]] = {
    "X": operator.attrgetter("X"),
    "data": operator.attrgetter("X", "responses"),
    "inducing_variable": operator.attrgetter("Z"),
    "kernel": operator.attrgetter("prior.kernel"),
    "mean_function": operator.attrgetter("prior.mean_function"),
    "noise_variance": operator.attrgetter("noise_variance"),
    "num_latent_gps": operator.attrgetter("J"),
}
"""What a `Start` supplies to constructors, by the names of their parameters."""

COVARIANCES = {
    "cholesky": "gpflow_gvi.covariances:CholeskySVGP.from_data",
    "diagonal": "gpflow_gvi.covariances:DiagonalSVGP.from_data",
    "kernelised": "gpflow_gvi.covariances:KernelisedSVGP",
    "sparse_posterior": "gpflow_gvi.covariances:SparsePosterior",
    "fixed_sparse_posterior": "gpflow_gvi.covariances:FixedSparsePosterior",
}
"""Constructors of covariances of Q."""

LOSSES = {
    "log_loss": "gpflow_gvi.losses:LogLoss",
    "predictive_log_loss": "gpflow_gvi.losses:PredictiveLogLoss",
    "beta_loss": "gpflow_gvi.losses:BetaLoss",
    "gamma_loss": "gpflow_gvi.losses:GammaLoss",
}

DIVERGENCES = {
    "inducing_kl": "gpflow_gvi.divergences:InducingKL",
    "projected_kl": "gpflow_gvi.divergences:ProjectedKL",
    "projected_reverse_kl": "gpflow_gvi.divergences:ProjectedReverseKL",
    "projected_renyi": "gpflow_gvi.divergences:ProjectedRenyi",
    "projected_bhattacharyya": "gpflow_gvi.divergences:ProjectedBhattacharyya",
    "projected_hellinger": "gpflow_gvi.divergences:ProjectedHellinger",
    "projected_wasserstein": "gpflow_gvi.divergences:ProjectedWasserstein",
    "projected_squared_difference": "gpflow_gvi.divergences:ProjectedSquaredDifference",
    "gaussian_wasserstein": "gpflow_gvi.divergences:GaussianWasserstein",
    "regularised_kl": "gpflow_gvi.divergences:RegularisedKL",
}

MAX_ITERATIONS = 600
"""The maximal number of iterations when a network is fitted to the mean of P."""

MAX_ROWS = 5000
"""The maximal number of rows of that fit, which is a start: each iteration passes all of them."""


@dataclasses.dataclass(frozen=True)
class NetworkMean:
    """A network alone, which is fitted to the mean of the sparse posterior first.

    For labels it has no softmax or sigmoid at its end, since the likelihood has its own.

    :param network: from [N, D...] to [N, J], a model of Keras; each mean function has a copy.
    """

    network: Any

    def __call__(self, start: Start) -> MeanFunction:
        """Return the mean function."""
        from .._core.images import as_rows
        from .._core.network_layers import are_probabilities, without_link
        from .q_training import fit_by_squares

        network = without_link(self.network) if start.of_classes else self.network
        mean, target = network_mean("mean", network, start), inducing_mean(start)
        X = start.X[:MAX_ROWS]  # the rows are shuffled
        rows, values = as_rows(X, mean), target(as_rows(X, start.prior.kernel))
        if start.of_classes and are_probabilities(mean(rows[:100]).numpy()):
            raise ValueError(
                f"mean is {short_repr(self.network)}, which returns probabilities; it must return "
                "logits, as the likelihood has a softmax of its own. Pass the same model without "
                "its last activation."
            )
        fit_by_squares(mean, rows, values, MAX_ITERATIONS)
        return mean


def named(name: str, value: Any, parts: Mapping[str, str]) -> Any:
    """Return a part with its defaults for its name, and any other value of an argument as it is."""
    from .._core import checks

    if not isinstance(value, str):
        return value
    checks.one_of(name, value, tuple(parts))
    return pkgutil.resolve_name(parts[value])()


def is_network(mean: Any) -> bool:
    """Return True if the argument `mean` is a network that alone is m_Q."""
    return not (mean is None or isinstance(mean, str))


def softmax_of(mean: Any) -> Likelihood | None:
    """Return the likelihood of labels for which a network of several columns is the mean of Q."""
    from gpflow.likelihoods import Softmax

    from .._core.network_function import as_function

    columns = getattr(as_function(mean), "num_outputs", 1) if is_network(mean) else 1
    return Softmax(columns) if columns > 1 else None


def mean_of_regulariser(start: Start) -> MeanFunction:
    """Return the mean of P, as it is."""
    return start.P.mean_function


def kernel_of_regulariser(start: Start) -> Kernel:
    """Return the kernel of P, as it is."""
    return start.P.kernel


def parse_mean(mean: Any) -> Callable[[Start], MeanFunction]:
    """Return the constructor of Q's initial mean that `learn`'s argument `mean` stands for."""
    from .._core import checks

    if not isinstance(mean, str):
        return NetworkMean(mean)
    names: dict[str, Callable[[Start], MeanFunction]] = {
        "inducing": inducing_mean,
        "recipe": InducingPlusNetwork(),
        "regulariser": mean_of_regulariser,
    }
    checks.one_of("mean", mean, tuple(names))
    return names[mean]


def parse_covariance(covariance: Any) -> Callable[[Start], Kernel]:
    """Return the constructor of Q's initial covariance, from `learn`'s argument `covariance`."""
    from gpflow.kernels import Kernel

    from .._core import checks

    constructor = covariance
    if isinstance(covariance, str):
        checks.one_of("covariance", covariance, (*COVARIANCES, "regulariser"))
        if covariance == "regulariser":
            return kernel_of_regulariser
        constructor = pkgutil.resolve_name(COVARIANCES[covariance])
    elif not (
        issubclass(covariance, Kernel) if inspect.isclass(covariance) else callable(covariance)
    ):
        raise TypeError(
            f"covariance is {short_repr(covariance)}; it must be one of "
            f"{', '.join(COVARIANCES)}, or a class of gpflow_gvi.covariances."
        )
    known = inspect.signature(constructor).parameters

    def build(start: Start) -> Kernel:
        return constructor(**{name: of(start) for name, of in SUPPLIED.items() if name in known})

    return build

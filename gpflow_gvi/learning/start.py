"""What the variational process Q starts from, and how it starts by default: at P."""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NumericsWarning

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction
    from gpflow.inducing_variables import InducingVariables
    from gpflow.kernels import Kernel

    from ..gaussian_process import GaussianProcess
    from ..mean_functions import Network
    from .rows.scaling import Scaling
    from .rows.streams import Stream
    from .rows.targets import Units

Array = np.ndarray[Any, Any]

MAX_RATIO = 2.0
"""A network that is added to the mean of Q should not start larger than this mean by more."""

MAX_ROWS = 1000
"""The rows at which that is seen."""


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The rows to train with, in the units of the model."""

    X: Array
    """Inputs, [N, D]."""
    Y: Array
    """Observations there, [N, J], or labels, [N, 1]."""
    responses: Array
    """Values that latent functions could have there: [N, J]."""
    seed: int
    input_shape: tuple[int, ...]
    """The shape of one input: (D,), or that of an image."""
    of_classes: bool
    """Whether Y are labels."""
    units: tuple[Scaling, Units]
    """The units of X and Y: what takes them to original units."""
    stream: Stream | None = None
    """All rows, as blocks of X and Y, where these are a sample of them."""
    weights: Array | None = None
    """w of each row, whose noise has the variance σ²/w: [N]; None for equal ones."""

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.X) if self.stream is None else self.stream.num_rows

    @property
    def D(self) -> int:  # noqa: N802
        """The number of columns of X."""
        return int(self.X.shape[-1])

    @functools.cached_property
    def features(self) -> Array:
        """The columns of X that kernels and predictors are made for.

        A constant column and a copy of an earlier one say nothing that the others do not.
        """
        if self.X.ndim != 2:
            return np.arange(self.D)
        _, first = np.unique(self.X, axis=1, return_index=True)
        varies = np.ptp(self.X, axis=0) > 0.0
        return np.sort(first[varies[first]]) if varies.any() else np.arange(self.D)

    @property
    def J(self) -> int:  # noqa: N802
        """The number of latent functions."""
        return int(self.responses.shape[-1])

    def first(self, max_rows: int | None) -> TrainingData:
        """Return the first rows, not more than `max_rows`."""
        names = ("X", "Y", "responses", "weights")
        parts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        first = {name: part[:max_rows] for name, part in parts.items()}
        return dataclasses.replace(self, **first, stream=None)

    @property
    def relative_noise(self) -> Array:
        """The variance of the noise of each row, 1 at a row of weight one: [N, J]."""
        ones = np.ones_like(self.responses)
        return ones if self.weights is None else ones / self.weights[:, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start(TrainingData):
    """The start of Q: the data, and the regulariser fitted to them."""

    P: GaussianProcess
    prior: GaussianProcess
    """P before it was conditioned."""
    posterior: GaussianProcess | None = None
    """P given all rows, of which these may be a sample; None if it is given those at Z alone. Q
    starts there if it is at inducing points."""
    Z: InducingVariables
    """Inducing points. They and `prior.kernel` are the same objects in P and in the mean and the
    covariance of Q, so that their matrices are computed once for all."""
    noise_variance: Any


def inducing_mean(start: Start) -> MeanFunction:
    """Return the mean of the sparse posterior given all rows (Titsias 2009)."""
    from ..mean_functions import Inducing

    m_P = start.prior.mean_function
    found = None if start.posterior is None else start.posterior.mean_function
    if isinstance(found, Inducing):
        q_mu = found.q_mu.numpy()
        return Inducing(
            start.prior.kernel, start.Z, mean_function=m_P, q_mu=q_mu, whiten=found.whiten
        )
    data = start.X, start.responses
    return Inducing.from_data(
        start.prior.kernel, start.Z, data, start.noise_variance, mean_function=m_P
    )


def inducing_covariance(start: Start) -> Kernel:
    """Return the covariance of the sparse posterior given all rows (Titsias 2009)."""
    from ..covariances import CholeskySVGP

    found = None if start.posterior is None else start.posterior.kernel
    if isinstance(found, CholeskySVGP):
        q_sqrt = found.q_sqrt.numpy()
        return CholeskySVGP(start.prior.kernel, start.Z, q_sqrt=q_sqrt, whiten=found.whiten)
    return CholeskySVGP.from_data(
        start.prior.kernel, start.Z, start.X, start.noise_variance, num_latent_gps=start.J
    )


@dataclasses.dataclass(frozen=True)
class InducingPlusNetwork:
    """The mean of the sparse posterior, and a network added to it.

    :param network: from [N, D] to [N, J], zero at its start; `recipe.network` if not given. Each
        mean function has a copy.
    """

    network: Any = None

    def __call__(self, start: Start) -> MeanFunction:
        """Return the mean function."""
        from ..mean_functions import Network
        from . import recipe

        mean = inducing_mean(start)
        if self.network is None:
            return mean + Network(recipe.network(start.D, start.J, seed=start.seed))
        network = network_mean("network", self.network, start)
        _warn_of_large(network, mean, start)
        return mean + network


def going_on_from(
    Q: GaussianProcess,
) -> tuple[Callable[[Start], MeanFunction], Callable[[Start], Kernel]] | None:
    """Return the constructors of a Q that has the network and the covariance of a trained one.

    It is at the same inducing points. None where there is no network, or it is a part of a mean of
    another form than those of `learn`.
    """
    from gpflow.functions import Additive

    from .._core.graphs import deepcopy
    from ..mean_functions import Inducing, Network

    mean, kernel = Q.mean_function, Q.kernel

    def covariance(start: Start) -> Kernel:
        shared = [(start.prior.kernel, start.prior.kernel)]
        if hasattr(kernel, "inducing_variable"):
            shared.append((kernel.inducing_variable, start.Z))
        return deepcopy(kernel, shared)

    if isinstance(mean, Network):
        return lambda _: deepcopy(mean), covariance
    if not isinstance(mean, Additive):
        return None
    if isinstance(mean.add_1, Inducing) and isinstance(mean.add_2, Network):
        return lambda start: inducing_mean(start) + deepcopy(mean.add_2), covariance
    return None


def _warn_of_large(network: Network, mean: MeanFunction, start: Start) -> None:
    """Warn of a network that is far from zero where it is to be added to the mean."""
    from .._core.images import as_rows

    X = start.X[:MAX_ROWS]
    added, found = (float(np.sqrt(np.mean(np.square(m(as_rows(X, m)))))) for m in (network, mean))
    if added > MAX_RATIO * max(found, 1.0):  # one is the deviation of Y in standard units
        warnings.warn(
            f"network is added to a mean of Q that is {found:.3g} (root mean square, in the units "
            f"of the model), and is itself {added:.3g} there; it should start near zero. If it is "
            "trained already, pass train_network=False and validation_data, and a process is put "
            'around it. Otherwise pass features="penultimate", which has Keras train it first, or '
            "start its last layer at zero.",
            NumericsWarning,
            stacklevel=2,
        )


def network_mean(name: str, network: Any, start: Start) -> Network:
    """Return a copy of a network as a mean function; raise if it has other columns than f."""
    from .._core.images import as_rows
    from .._core.network_function import as_function
    from ..mean_functions import Network

    mean = Network(copy.deepcopy(as_function(network)))
    columns = mean(as_rows(start.X[:1], mean)).shape[-1]
    if columns != start.J:
        raise ValueError(
            f"{name} returns {columns} columns, but there are {start.J} latent functions; give it "
            f"{start.J} outputs."
        )
    return mean

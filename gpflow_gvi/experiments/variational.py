"""The variational process Q: its mean and its covariance."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

import gpflow_gvi as gvi

from .kernels import BaseKernel, Site
from .networks import DEFAULT, Layers, network
from .parts import BY_KIND, OR_NAME, Part, Positive

if TYPE_CHECKING:
    import gpflow
    from gpflow.functions import MeanFunction
    from gpflow.kernels import Kernel as GPflowKernel


@dataclasses.dataclass(frozen=True)
class Start(Site):
    """What the variational process starts from: the data, and the regulariser fitted to them."""

    P: gvi.GaussianProcess
    prior: gvi.GaussianProcess
    Z: gpflow.inducing_variables.InducingVariables
    """Inducing points, the same object for the mean and for the covariance."""
    noise_variance: Any


class NetworkMean(Part):
    """A network with a linear readout of one unit for each latent function."""

    kind: Literal["network"] = "network"
    layers: Layers = DEFAULT
    readout: Literal["zeros", "random"] = "zeros"
    """Where the weights of the readout start."""

    def build(self, start: Start) -> MeanFunction:
        """Return the mean function."""
        zeros = self.readout == "zeros"
        return gvi.mean_functions.Network(
            network(self.layers, start.input_shape, readout=start.J, zeros=zeros, seed=start.seed)
        )


class InducingMean(Part):
    """The mean of a sparse posterior, with its values at the inducing points to be learned."""

    kind: Literal["inducing"] = "inducing"

    def build(self, start: Start) -> MeanFunction:
        """Return the mean function at its optimum for Gaussian noise."""
        return gvi.mean_functions.Inducing.from_data(
            start.prior.kernel,
            start.Z,
            (start.X, start.responses),
            start.noise_variance,
            mean_function=start.prior.mean_function,
        )


class RegulariserMean(Part):
    """The mean of P, as it is."""

    kind: Literal["regulariser"] = "regulariser"

    def build(self, start: Start) -> MeanFunction:
        """Return the mean function."""
        return start.P.mean_function


class SumMean(Part):
    """A sum of means."""

    kind: Literal["sum"] = "sum"
    parts: Annotated[tuple[Mean, ...], Field(min_length=2)]

    def build(self, start: Start) -> MeanFunction:
        """Return the mean function."""
        return functools.reduce(operator.add, [part.build(start) for part in self.parts])


Mean = Annotated[NetworkMean | InducingMean | RegulariserMean | SumMean, BY_KIND, OR_NAME]


class SVGPCovariance(Part):
    """k - Q_Z + K_xZ Σ K_Zx', with any Σ or a diagonal one."""

    kind: Literal["cholesky", "diagonal"]

    def build(self, start: Start) -> GPflowKernel:
        """Return the covariance at its optimum for Gaussian noise."""
        families: dict[str, Any] = {
            "cholesky": gvi.covariances.CholeskySVGP,
            "diagonal": gvi.covariances.DiagonalSVGP,
        }
        return families[self.kind].from_data(
            start.prior.kernel, start.Z, start.X, start.noise_variance, num_latent_gps=start.J
        )


class KernelCovariance(Part):
    """A covariance with a kernel of its own, a copy of k unless another one is given."""

    kind: Literal["kernelised", "sparse_posterior", "fixed_sparse_posterior"]
    base_kernel: BaseKernel | None = None

    def build(self, start: Start) -> GPflowKernel:
        """Return the covariance."""
        family = {
            "kernelised": gvi.covariances.KernelisedSVGP,
            "sparse_posterior": gvi.covariances.SparsePosterior,
            "fixed_sparse_posterior": gvi.covariances.FixedSparsePosterior,
        }[self.kind]
        own = None if self.base_kernel is None else self.base_kernel.build(start)
        return family(start.prior.kernel, start.Z, base_kernel=own, num_latent_gps=start.J)


class TemperedCovariance(Part):
    """A factor, to be learned, times another covariance."""

    kind: Literal["tempered"] = "tempered"
    base: Covariance = SVGPCovariance(kind="cholesky")
    factor: Positive = 1.0

    def build(self, start: Start) -> GPflowKernel:
        """Return the covariance."""
        return gvi.covariances.Tempered(self.base.build(start), self.factor)


class RegulariserCovariance(Part):
    """The kernel of P, as it is."""

    kind: Literal["regulariser"] = "regulariser"

    def build(self, start: Start) -> GPflowKernel:
        """Return the covariance."""
        return start.P.kernel


Covariance = Annotated[
    SVGPCovariance | KernelCovariance | TemperedCovariance | RegulariserCovariance, BY_KIND, OR_NAME
]

SumMean.model_rebuild()
TemperedCovariance.model_rebuild()

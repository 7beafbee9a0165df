"""What `learn` is asked of Q: its parts, its objective and its training, any of which trains it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, Literal

from .._core import checks
from .._core.graphs import deepcopy
from ..divergences import Divergence, InducingKL
from ..errors import short_repr
from ..losses import Loss
from ..models import GVI, PGVI
from . import refusals
from .refusals import refuse
from .settings import ModelSettings, VariationalSettings
from .start import InducingPlusNetwork, inducing_mean
from .variational import (
    DIVERGENCES,
    LOSSES,
    is_network,
    named,
    parse_covariance,
    parse_mean,
)

OF_NETWORKS = "network", "epochs"
"""What may be asked for where the network alone is trained, too."""


@dataclasses.dataclass(frozen=True)
class QRequest:
    """The arguments of `learn` that are of Q; None is what was not asked for."""

    network: Any
    mean: Any
    covariance: Any
    regulariser: Literal["posterior", "prior"] | None
    model: type[GVI] | None
    divergence: Divergence | None
    divergence_weight: float | Literal["1/N"] | None
    loss: Loss | None
    epochs: int | None

    @classmethod
    def of(cls, *, divergence: Any, loss: Any, **others: Any) -> QRequest:
        """Return the request, with parts in place of their names; "robust" is no loss of Q."""
        if isinstance(loss, str):
            checks.one_of("loss", loss, ("robust", *LOSSES))
            loss = None if loss == "robust" else named("loss", loss, LOSSES)
        divergence = named("divergence", divergence, DIVERGENCES)
        for name, value, kind in (("loss", loss, Loss), ("divergence", divergence, Divergence)):
            if value is not None:
                checks.instance(name, value, kind)
        return cls(divergence=divergence, loss=loss, **others)

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.epochs is not None:
            checks.count("epochs", self.epochs, least=0)
        checks.one_of("regulariser", self.regulariser, (None, "posterior", "prior"))
        if self.model is GVI and self.divergence is None:
            raise TypeError("model is GVI, which has no divergence of its own: pass divergence=...")
        if self.model is not None and not (
            isinstance(self.model, type) and issubclass(self.model, GVI)
        ):
            raise TypeError(
                f"model is {short_repr(self.model)}; it must be a class: gpflow_gvi.models.PGVI, "
                "GWI or GVI."
            )
        if isinstance(self.divergence_weight, str):
            checks.one_of("divergence_weight", self.divergence_weight, ("1/N",))
        if self.mean is not None:
            refuse(refusals.HAS_MEAN, network=self.network)
        if self.is_svgp:
            names = "mean", "covariance", "regulariser", "network"
            refuse(refusals.OF_INDUCING, **{name: getattr(self, name) for name in names})

    @property
    def is_given(self) -> bool:
        """Whether anything was asked for, so that Q is trained."""
        return any(value is not None for value in vars(self).values())

    @property
    def is_alone(self) -> bool:
        """Whether a network alone is the mean of Q, which does not start at P's predictions."""
        return is_network(self.mean)

    @property
    def is_bounded(self) -> bool:
        """Whether the loss of a row is bounded."""
        return self.loss is not None and self.loss.is_bounded

    @property
    def is_svgp(self) -> bool:
        """Whether Q is an inducing distribution under P's own prior, for which D is finite."""
        return isinstance(self.divergence, InducingKL)

    @property
    def process(self) -> Callable[[Any], Any]:
        """Which process P is, of a fitted regulariser."""
        return operator.attrgetter("prior" if self.is_svgp else self.regulariser or "posterior")

    @property
    def variational(self) -> VariationalSettings:
        """The parts of Q; nothing is added to the mean of a Q that is not trained."""
        if self.mean is not None:
            mean = parse_mean(self.mean)
        elif self.is_given and not self.is_svgp:
            mean = InducingPlusNetwork(self.network)
        else:
            mean = inducing_mean
        if self.covariance is None:
            return VariationalSettings(mean)
        return VariationalSettings(mean, parse_covariance(self.covariance))

    @property
    def objective(self) -> ModelSettings:
        """The model, with its divergence, loss and λ."""
        weight, loss, divergence = self.divergence_weight, self.loss, self.divergence
        return ModelSettings(
            kind=PGVI if self.model is None else self.model,
            # Each training starts from the same state of its context.
            divergence=None if divergence is None else lambda _: deepcopy(divergence),
            divergence_weight=ModelSettings.divergence_weight if weight is None else weight,
            loss=None if loss is None else lambda: loss,
        )

    def refuse(self, why: str, **others: Any) -> None:
        """Raise if anything but a network and its epochs was asked for, or anything of `others`."""
        of_q = {name: value for name, value in vars(self).items() if name not in OF_NETWORKS}
        refuse(why, **of_q)
        refuse(why, **others)

"""Refusals of arguments of `learn` that are given and would have no effect.

The default of an argument that matters only in some cases is None, so that an
explicit request can be told from the default.
"""

from __future__ import annotations

from typing import Any

from ..errors import short_repr

NOT_TRAINED = (
    "has no effect, as nothing of Q is trained here: pass model=, network=, divergence= or "
    "epochs= to train it, or leave it out"
)
HAS_MEAN = "is added to the default mean of Q, but mean= is given: leave out one of them"
OF_INDUCING = (
    "is not for divergence=InducingKL(), which is infinite unless Q is an inducing distribution "
    "under P's own prior: leave it out, or take a projected divergence or GaussianWasserstein()"
)
NO_COLUMNS = (
    "says what a network returns, but the network is added to the mean of Q here: pass "
    "train_network=False, or leave it out"
)
OF_KERAS = (
    "is for a network that is trained before a process is put around it: leave it out, or train "
    "the parts yourself, by compile and fit of a GVI model"
)
NO_NETWORK = "has no effect without a network: pass network=, or leave it out"
NOT_AROUND = (
    "has no effect around a network, whose predictions are the mean of P and Q: no candidates "
    "for P are compared, and Q is not trained. Leave it out, or pass the network as mean= and a "
    "kernel=, to train Q"
)
NETWORK_NOT_TRAINED = (
    "has no effect, as the network is not trained: pass train_network=True, or leave it out"
)
COMPILED = (
    "has no effect, as the network is compiled with an optimiser of its own: compile it with that "
    "rate, or leave it out"
)
NOT_JOINT = (
    "is not for several outputs that are learned together, as by outputs='correlated' or where "
    "values are missing: leave out one of them"
)
NOT_WEIGHTED = (
    "is not for rows of different weights, which are of real-valued Y under constant Gaussian "
    "noise, and say how P is fitted: leave it out, or sample_weight"
)
NOT_OF_LABELS = (
    "is for rows of real-valued Y, but Y are labels: leave it out, or pass whole numbers to fit of "
    "GVIClassifier"
)
NO_NOISE = (
    "is for real-valued Y under Gaussian noise that starts from a number; likelihood is {}. Leave "
    "one of them out"
)
NOTHING_HELD_OUT = (
    "has no effect, as validation_data are given and nothing else is held out: leave out one of "
    "them"
)


def require_pair(data: Any, option: str, name: str = "data") -> None:
    """Raise unless data, an argument of this name, are a pair, as an option needs them."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(
            f"{name} is a {type(data).__name__}; with {option} it must be a pair of arrays (X, Y)."
        )


def refuse(why: str, **arguments: Any) -> None:
    """Raise if any of the arguments is not None.

    :param why: why it cannot be, and what to do instead; it follows the name and the value.
    """
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is {short_repr(value)}, which {why}.")

"""What the estimators of scikit-learn share: their parameters, and how `learn` is called."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._core import checks
from .._core.data import as_floats, require_real_columns
from ..divergences import Divergence
from ..learning import Effort, Learned, Noise, Settings, learn, recipe, with_names
from ..learning.variational import is_network
from ..losses import Loss
from ..models import GVI


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Estimator(BaseEstimator):
    """The parameters of both estimators, and how `learn` is called with them.

    :param kernel: k of the regulariser P, with the hyper-parameters to start from, in standard
        units of X and y; or several, as of `learn`.
    :param predictor: what P's mean is made of, as of `learn`; for labels, of classifiers.
    :param noise: the noise of real-valued y: "constant", "varying" or "auto".
    :param outputs: "correlated" to learn several columns of real-valued y together.
    :param missing: "ignore" to leave out values of real-valued y that are NaN, None or masked.
    :param network: what is added to the mean of Q, as of `learn`, or the number of units of
        `recipe.network`; or models of Keras to put a process around. X may be images then.
    :param train_network: False to leave a network as it is; by default it is trained.
    :param features: the features of a network that the kernel is on, as in `learn`.
    :param classes: the class of each column of a network, if they are not sorted, or y lacks some.
    :param likelihood: one of GPflow, for y that are counts, amounts, fractions or levels, or have
        noise of heavy tails; of a classifier, one of as many classes as y has.
    :param loss: "robust" for real-valued y with outliers; or a loss to train Q with, or its name.
    :param mean: m_Q, by its name or as a model of Keras, as of `learn`; with that X may be images.
    :param covariance: r, by its name or as a class, as of `learn`.
    :param regulariser: "posterior" or "prior", what Q is held to.
    :param model: `PGVI` or `GWI`; or `GVI`, which needs a divergence. By default `PGVI`.
    :param divergence: D, or its name; by default that of the model.
    :param divergence_weight: λ; by default 0.1. "1/N" is one D beside the sum of losses.
    :param num_inducing: the maximal number M of inducing points; by default that of `learn`.
    :param calibration_fraction: the part of the rows to set aside for conformal intervals or sets.
    :param epochs: the most for training Q; by default those of `learn` if any part of it is given,
        else none.
    :param batch_size: rows of a batch, of what is trained; by default 200.
    :param learning_rate: Adam's at the start, of what is trained; by default 0.003.
    :param effort: "fast", "default" or "best", as of `learn`.
    :param n_jobs: how many predictors are fitted at once, as joblib has it.
    :param random_state: a whole number for the same result in each fit.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing.
    """

    kernel: Kernel | Sequence[Kernel] | None = None
    predictor: Any = "auto"
    noise: Noise | None = None
    outputs: Literal["independent", "correlated"] = "independent"
    missing: Literal["refuse", "ignore"] = "refuse"
    network: Any = None
    train_network: bool | None = None
    features: Any = None
    classes: Any = None
    likelihood: Likelihood | None = None
    loss: str | Loss | None = None
    mean: Any = None
    covariance: Any = None
    regulariser: Literal["posterior", "prior"] | None = None
    model: type[GVI] | None = None
    divergence: str | Divergence | None = None
    divergence_weight: float | Literal["1/N"] | None = None
    num_inducing: int | None = None
    calibration_fraction: float = Settings.calibration_fraction
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    effort: Effort = "default"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def __sklearn_clone__(self) -> Estimator:
        """Return a copy that is not fitted, also of a model of Keras whose class Keras cannot copy.

        scikit-learn takes a deep copy of each parameter, which Keras makes of registered classes.
        """
        given = {name: getattr(self, name) for name in ("predictor", "network", "mean")}
        networks = {
            name: value
            for name, value in given.items()
            if callable(value) and not hasattr(value, "get_params")
        }
        if not networks:
            return super().__sklearn_clone__()
        from ..networks import NetworkFunction

        others = copy.copy(self).set_params(**dict.fromkeys(networks))
        copies = {k: copy.deepcopy(NetworkFunction(v)).network for k, v in networks.items()}
        return BaseEstimator.__sklearn_clone__(others).set_params(**copies)

    def _learn(self, X: AnyNDArray, Y: AnyNDArray, J: int, **options: Any) -> Learned:
        """Learn from X [N, D] and Y, with J latent functions."""
        seed = seed_of(self.random_state)
        network = self.network
        if isinstance(network, int | np.integer):
            checks.count("network", network)
            network = recipe.network(X.shape[-1], J, units=int(network), seed=seed)
        names = [field.name for field in dataclasses.fields(Estimator)]
        parameters = {name: getattr(self, name) for name in names if name != "random_state"}
        learned = learn((X, Y), **parameters | {"network": network, "seed": seed} | options)
        columns = getattr(self, "feature_names_in_", None)
        return learned if columns is None else with_names(learned, tuple(columns))

    def _weights(self, X: AnyNDArray, weights: Any) -> AnyNDArray:
        """Return the weights of the rows of X as numbers, none of which is negative: [N]."""
        with naming("sample_weight"):
            return np.asarray(_check_sample_weight(weights, X, ensure_non_negative=True))

    def _rows(self, X: Any) -> AnyNDArray:
        """Return X as an array, if the estimator is fitted and X is of its kind."""
        check_is_fitted(self)
        return np.asarray(self._validated(X, reset=False))

    def _validated(self, *data: Any, **options: Any) -> Any:
        """Return X, or X and y, as scikit-learn validates them.

        It knows of no masks, takes dates for numbers, and passes on errors of NumPy and pandas.
        """
        with naming("X or y" if len(data) == 2 else "X"):
            for name, values in zip("Xy", data, strict=False):
                if isinstance(values, np.ma.MaskedArray):
                    checks.array(name, values)
                if name == "X":
                    require_real_columns(name, values)
                found = np.asarray(values)
                if (name == "X" or options.get("y_numeric")) and found.dtype.kind in "iumM":
                    as_floats(name, found)
                if any(isinstance(each, np.ndarray | list) for each in found.flat[:100]):
                    checks.array(name, values)
                if found.ndim and found.dtype.kind in ("Of" if name == "y" else "O"):
                    checks.complete(name, found)
            images = self._takes_images and len(np.shape(data[0])) > 2
            kind = None if images else default_float()  # pixels in bytes are scaled
            return validate_data(self, *data, dtype=kind, allow_nd=images, **options)

    @property
    def _takes_images(self) -> bool:
        return is_network(self.mean) or not isinstance(self.network, int | np.integer | None)


Estimator.__init__.__doc__ = Estimator.__doc__


def seed_of(random_state: Any) -> int:
    """Return the next seed of what scikit-learn takes for a source of random numbers."""
    with naming("random_state"):
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


_OF_NO_NUMBERS = re.compile(
    r"(?i)(could not|cannot|unable to) convert|promoted|float\(\) arg|real number|numeric values|"
    r"array element with a sequence|complex data"
)
"""What errors say of values that are no numbers."""

_ENCODE = (
    " They must be numbers: encode columns of text, categories or dates, for example by "
    "scikit-learn's OneHotEncoder in a pipeline; names of classes are for GVIClassifier."
)


@contextlib.contextmanager
def naming(names: str) -> Iterator[None]:
    """Let errors of scikit-learn, NumPy and pandas say which arguments they are about."""
    try:
        yield
    except NotFittedError:
        raise
    except Exception as error:  # of any kind, as other libraries check strange data
        if type(error) in (TypeError, ValueError) and re.search(r"(?<!')\b[Xy]\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        reason = str(error).rstrip(" .!\n")
        remedy = _ENCODE if names.startswith("X") and _OF_NO_NUMBERS.search(reason) else ""
        raise kind(f"{names} cannot be taken: {reason}.{remedy}") from error

"""The arguments of `learn`: checked together, and made into rows and the settings of steps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core import checks, feature_names, labels, row_numbers
from .._core.data import Data
from .._core.network_graph import as_graph
from ..errors import short_repr
from ..kernels.active_columns import require_columns
from ..likelihoods import has_constant_noise
from . import refusals
from .around_network.network_checks import is_put_around
from .around_network.network_data import in_memory, inputs_of
from .around_network.network_training import NetworkTraining, all_compiled
from .joint_outputs import observed
from .q_request import QRequest
from .q_training import BatchTraining, CosineAdam, EarlyStopping, Passes
from .refusals import refuse, require_pair
from .rows.split import from_one_hot, is_of_one_column, of_labels, weights_of_rows
from .settings import MAX_INDUCING, Effort, Noise, Settings, preset
from .variational import is_network, softmax_of

if TYPE_CHECKING:
    from .start import TrainingData


class Arguments(SimpleNamespace):
    """The arguments of `learn`, by their names."""

    def checked(self) -> Arguments:
        """Return them; raise for values that are none of an argument's, whatever the others are."""
        if self.others:
            raise TypeError("learn takes X and Y as a pair, learn((X, Y)), and the rest by name.")
        data = self.data
        if isinstance(data, tuple | list):
            row_numbers.warn(data[0] if data else None, stacklevel=4)
        for name in ("batch_size", "num_inducing"):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name))
        checks.count("seed", self.seed, least=0, most=2**32 - 1)
        if self.learning_rate is not None:
            checks.positive("learning_rate", self.learning_rate)
        if not (self.n_jobs is None or (isinstance(self.n_jobs, int | np.integer) and self.n_jobs)):
            raise ValueError(
                f"n_jobs is {short_repr(self.n_jobs)}; it must be a whole number other than 0."
            )
        if not callable(self.select):
            raise TypeError(
                f"select is {short_repr(self.select)}; it must be a function: "
                "greedy_variance, uniform or kmeans of gpflow_gvi.inducing, or one of your own."
            )
        checks.likelihood(self.likelihood)
        _require_kernels(self.kernel)
        checks.one_of("noise", self.noise, (None, *get_args(Noise)))
        checks.one_of("effort", self.effort, get_args(Effort))
        checks.one_of("outputs", self.outputs, ("independent", "correlated"))
        checks.one_of("standardise", self.standardise, (True, False))
        checks.one_of("missing", self.missing, ("refuse", "ignore"))
        if self.sample_weight is not None:
            refuse(refusals.NOT_WEIGHTED, validation_data=self.validation_data)
        inputs = inputs_of(self.validation_data)
        feature_names.require("validation_data[0]", inputs, feature_names.of(inputs_of(data)))
        return self

    def only(self, *names: str) -> dict[str, Any]:
        """Return some of the arguments, by their names."""
        return {name: getattr(self, name) for name in names}

    def of_q(self) -> QRequest:
        """The arguments that are of Q; where none is given, Q is not trained."""
        mean, of_arrays = vars(self)["mean"], isinstance(self.data, tuple | list)
        if is_network(mean) and of_arrays:
            _, *shape = getattr(inputs_of(self.data), "shape", ()) or (0,)
            if len(shape) > 1:  # images become rows, so that it has to know the shape of one
                vars(self)["mean"] = as_graph(mean, np.zeros([1, *shape], default_float()))
        asked = QRequest.of(**self.only(*QRequest.__annotations__))
        if not asked.is_given:
            refuse(refusals.NOT_TRAINED, **self.only("batch_size", "learning_rate"))
        return asked

    def network_around(self, data: Any) -> Any:
        """Return the network if a process is put around it; refuse what is of the other case."""
        of_columns = self.only("classes", "output")
        if self.network is None:
            of_network = self.only("features", "train_network")
            refuse(refusals.NO_NETWORK, **of_network, **of_columns)
        if is_put_around(self.network, self.features, self.train_network, data):
            return self.network
        refuse(refusals.NO_COLUMNS, **of_columns)
        refuse(refusals.OF_KERAS, callbacks=self.callbacks)
        return None

    @property
    def robust(self) -> str | None:
        """The loss, if it is "robust"."""
        return self.loss if isinstance(self.loss, str) and self.loss == "robust" else None

    @property
    def own_predictor(self) -> Any:
        """The predictor, if it is one, and not a choice by name."""
        return None if isinstance(self.predictor, str) else self.predictor

    def beyond_plain(self, joint: bool = False) -> dict[str, Any]:
        """What is asked for but constant Gaussian noise, and a network with its epochs.

        :param joint: whether that outputs are learned together is a part of it.
        """
        names = ("outputs" if self.outputs == "correlated" else "missing",) * joint
        return {
            **self.only("network", "epochs", *names),
            "noise": None if self.noise == "constant" else self.noise,
            "likelihood": None if has_constant_noise(self.likelihood) else self.likelihood,
            "loss": self.robust,
        }

    @property
    def beyond_network(self) -> dict[str, Any]:
        """What is asked for that a process around a network makes no use of."""
        has_points = self.effort == "best" and self.num_inducing is None  # twice as many
        return {
            "predictor": self.own_predictor,
            "noise": self.noise,
            "loss": self.robust,
            "effort": None if self.effort == "default" or has_points else self.effort,
        }

    @property
    def kernels(self) -> Sequence[Kernel] | None:
        """The kernels to choose among, if any is given."""
        return [self.kernel] if isinstance(self.kernel, Kernel) else self.kernel

    @property
    def schedule(self) -> tuple[Passes, CosineAdam]:
        """The epochs and batches, and the optimiser."""
        given = self.only("epochs", "batch_size").items()
        passes = Passes(**{name: value for name, value in given if value is not None})
        rate = self.learning_rate
        return passes, CosineAdam() if rate is None else CosineAdam(rate)

    @property
    def training(self) -> NetworkTraining | None:
        """How a network is trained that a process is put around; None to leave it as it is."""
        if self.train_network is not None and not self.train_network:
            of_training = ("epochs", "callbacks", "batch_size", "learning_rate")
            refuse(refusals.NETWORK_NOT_TRAINED, **self.only(*of_training))
            return None
        if all_compiled(self.network):
            refuse(refusals.COMPILED, learning_rate=self.learning_rate)
        return NetworkTraining(*self.schedule, self.seed, self.callbacks or ())

    def settings(self, asked: QRequest, predictors: Any, classes: Any) -> Settings:
        """Return the settings of the procedure.

        :param predictors: estimators for P to be around.
        :param classes: the names of the classes, if Y are labels.
        """
        kernels, start, noise, M = self.kernels, preset(self.effort), self.noise, self.num_inducing
        of_recipe = kernels is None and not asked.is_given
        follows = not (asked.is_alone or asked.is_bounded)  # P, in each row
        is_fixed = M is not None or not follows or self.effort == "fast"
        may_vary = kernels is None and follows and self.sample_weight is None
        may_have_tails = kernels is None and not asked.is_bounded and noise is None
        passes, adam = self.schedule
        if asked.loss is not None and self.likelihood is not None:
            asked.loss.check(self.likelihood)
        return Settings(
            regulariser=dataclasses.replace(
                start,
                kernels=None if kernels is None else functools.partial(_given_kernels, kernels),
                num_inducing=start.num_inducing if M is None else M,
                max_inducing=None if is_fixed else MAX_INDUCING,
                predictors=predictors,
                noise=noise or (start.noise if may_vary else "constant"),
                heavy_tails=(start.heavy_tails or asked.is_alone or None)
                if may_have_tails
                else None,
                select=self.select,
                process=asked.process,
                n_jobs=self.n_jobs,
            ),
            variational=asked.variational,
            model=asked.objective,
            training=BatchTraining(passes, adam, EarlyStopping()),
            classes=classes,
            pool=of_recipe and noise is None and isinstance(self.predictor, str | None),
            **self.only("validation_fraction", "calibration_fraction", "likelihood"),
            **self.only("standardise", "sample_weight", "row_numbers", "seed"),
        )


def _require_kernels(kernel: Any) -> None:
    """Raise unless an argument is None, a kernel or some kernels."""
    if kernel is None:
        return
    several = kernel if isinstance(kernel, list | tuple) and kernel else [kernel]
    for each in several:
        if not isinstance(each, Kernel):
            is_class = isinstance(each, type) and issubclass(each, Kernel)
            remedy = f"{each.__name__}()" if is_class else "gpflow.kernels.SquaredExponential()"
            raise TypeError(
                f"kernel is {short_repr(kernel)}, but {short_repr(each)} is no kernel of GPflow. "
                f"Pass an object such as {remedy}, or a list of such."
            )


def _given_kernels(kernels: Sequence[Kernel], data: TrainingData) -> Sequence[Kernel]:
    """Return the kernels, or raise if one is for other columns than those of the data."""
    if data.X.ndim == 2:
        require_columns(kernels, data.X.shape[1])
    return kernels


def observations(given: Arguments) -> tuple[Any, bool, Any, Any]:
    """Return the rows to learn from: those with an observation, and of a weight that is not zero.

    Besides, whether outputs are learned together; where the rows stand among those that were given,
    [N], if some are left out; and their weights, as multiples of the average, if they were given.
    """
    data, numbers, weights = given.data, None, None
    jointly = given.outputs == "correlated"
    if jointly:
        require_pair(data, "outputs='correlated'")
    if given.robust is not None:
        require_pair(data, "loss='robust'")
    if given.sample_weight is not None:
        require_pair(data, "sample_weight")
        weights = weights_of_rows(given.sample_weight, data)
        if labels.labelled_rows(data[1]) is not None:
            refuse(refusals.NOT_OF_LABELS, sample_weight=given.sample_weight)
        if not np.all(weights):
            numbers = np.flatnonzero(weights)
            data = tuple(np.asanyarray(part)[numbers] for part in data)
            weights = weights[numbers]
    if given.missing == "ignore":
        X, Y, rows = observed(data)
        if len(rows) < len(data[0]):
            numbers = rows if numbers is None else numbers[rows]
        weights = None if weights is None else weights[rows]
        values = np.asarray(Y)  # may be labels
        data, jointly = (X, Y), jointly or bool(np.any(values != values))
    elif jointly:
        X, Y = Data.of(data)  # nothing may be missing
        data = np.asarray(X), np.asarray(Y)
    return data, jointly, numbers, None if weights is None else weights / np.mean(weights)


def labelled(
    given: Arguments, rows: Any, validation_data: Any, network: Any
) -> tuple[Any, Any, Likelihood | None, Any]:
    """Return data with labels as class indices, their likelihood, and the classes."""
    of_columns = softmax_of(given.mean)  # a network of several columns is for labels
    if network is not None:
        rows = in_memory("data", rows, network)
        validation_data = in_memory("validation_data", validation_data, network)
    likelihood = given.likelihood
    if likelihood is None and (network is not None or of_columns is not None):
        rows, validation_data = from_one_hot(rows), from_one_hot(validation_data)
        if network is None and is_of_one_column(rows):
            likelihood = of_columns
    found = of_labels(rows, validation_data, likelihood, given.classes)
    rows, validation_data, likelihood, names = found
    # A network says by itself what it is for.
    return rows, validation_data, likelihood if network is None else given.likelihood, names

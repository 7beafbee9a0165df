"""What the procedure returns: a model that takes and returns original units."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from scipy import stats

from .._core import checks, labels
from .._core.data import Data, observations
from .._core.mode import inference
from .._core.progress import Record
from .._core.row_blocks import by_blocks, tensors_by_blocks
from ..calibration import Conformal, ConformalQuantiles, ConformalSets
from ..calibration.conformal_prediction import around, require_real_outputs
from ..kernels import OutputAsInput
from ..likelihoods import are_labels, degrees_of_freedom, draw, draws_samples, is_gaussian
from ..models import GVI
from ..prediction.acquisition import Kind, acquire
from ..prediction.class_probabilities import Entropies, entropies, require_classes
from ..prediction.predictive_law import central_interval, half_width, pit
from ..regulariser.expectations import log_predictive_densities
from ..regulariser.fit import Regulariser
from .around_network.network_rows import NetworkInputs
from .outliers import Outliers
from .predictions import Law, Predictions, moments_of_mixture, weighted
from .rows.log_scale import LogScale
from .rows.scaling import Scaling
from .rows.targets import Units, in_units, units_of_f, units_of_predictions
from .summary import Presented
from .updating import update

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, repr=False)
class Learned(Presented):
    """A fitted, tempered model that takes and returns original units."""

    model: GVI
    """The model, in standard units."""
    regulariser: Regulariser
    """The regulariser, in standard units, conditioned on the rows that the model was fitted to."""
    inputs: Scaling | NetworkInputs
    """Standard units of X, or the network that makes rows of what the model takes of it."""
    outputs: Units
    """Standard units of Y."""
    history: dict[str, list[float]]
    """For each epoch of training Q: the loss, its terms, and the held-out density."""
    calibration: Conformal | ConformalQuantiles | ConformalSets | None = None
    """Intervals, or sets of classes, with a guarantee, if data were set aside for them; in standard
    units."""
    classes_: Array | None = None
    """The classes, sorted, if Y are labels; columns of probabilities are in their order."""
    record: Record | None = None
    """The stages, their times, and the scores that were compared."""
    outliers: Outliers | None = None
    """The rows that a robust fit has left out."""

    @property
    def likelihood(self) -> Likelihood:
        """p(y | f), in standard units."""
        return self.model.likelihood

    @property
    def parts(self) -> tuple[Learned, ...]:
        """The parts of a mixture of which predictions are; here the one there is."""
        return (self,)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights of the parts, which add up to one."""
        return (1.0,)

    @property
    def models(self) -> tuple[GVI, ...]:
        """The model of each part, in standard units."""
        return tuple(part.model for part in self.parts)

    @property
    def weights(self) -> Array:
        """The weights of these models: [C]."""
        return np.array(self.shares)

    def predict(self, X: TensorType) -> Array:
        """Return the most probable label at X, [N], or the mean of real-valued Y, [N, J]."""
        if self.classes_ is None:
            return np.asarray(self.predict_y(X)[0])
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def predict_f(self, X: TensorType, full_cov: bool = False) -> MeanAndVariance:
        """Return mean and variance of f at X, [N, J] each (covariance [J, N, N]).

        They are in the units of Y where f is the location of y, or of log y.
        """
        rows = self.inputs.validated(X)
        if full_cov:
            moments = [part._joint_f(rows) for part in self.parts]
        else:
            moments = [part._predictions.f(rows) for part in self.parts]
        return moments_of_mixture(self.shares, moments, joint=full_cov)

    def _joint_f(self, rows: tf.Tensor) -> MeanAndVariance:
        """Return mean and covariance of f at rows that `inputs.validated` returns."""
        units = units_of_f(self.likelihood, self.outputs)
        moments = self.model.predict_f(self.inputs.scaled(rows), full_cov=True)
        return in_units(units, *moments)

    def predict_y(self, X: TensorType) -> MeanAndVariance:
        """Return mean and variance of y at X: [N, J] each."""
        rows = self.inputs.validated(X)
        return moments_of_mixture(self.shares, [part._predictions.y(rows) for part in self.parts])

    @functools.cached_property
    def _predictions(self) -> Any:
        return Predictions.of(self.model, self.inputs, self.outputs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without graphs."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        """Return the log density of each observed y, or of its label the log probability: [N].

        It is that of all columns of a row together, which are correlated if they were learned so.
        """
        X, Y = self.inputs.standard(data[0]), self.standard_y(data[1])
        if draws_samples(self.likelihood):
            rows = X, *self.model.predict_f(X), labels.observed(self.likelihood, Y)
            found = tf.convert_to_tensor(log_predictive_densities(self.likelihood, *rows))
        else:
            found = self.model.predict_log_density((X, Y))
        return found + self.outputs.log_derivative(Y)

    def pit(self, X: TensorType, Y: TensorType) -> Array:
        """Return the (randomised) probability integral transform of each observation: [N, J]."""
        X = self.inputs.standard(X)
        parts = [pit(part.model, (X, part.standard_y(Y))) for part in self.parts]
        return weighted(self.shares, parts)

    def standard_y(self, Y: TensorType) -> tf.Tensor:
        """Return observations in standard units, [N, P], and labels as class indices."""
        if self.classes_ is not None:
            Y = labels.encoded("Y", Y, self.classes_)
        return self.outputs.standard(observations("Y", Y))

    def predict_f_samples(self, X: TensorType, num_samples: int) -> tf.Tensor:
        """Return joint samples of f at X: [num_samples, N, J]."""
        checks.count("num_samples", num_samples)
        samples = self.model.predict_f_samples(self.inputs.standard(X), num_samples)
        return units_of_f(self.likelihood, self.outputs).original(samples)

    def predict_y_samples(
        self, X: TensorType, num_samples: int, *, seed: int | None = None
    ) -> Array:
        """Return samples of observations y at X: [num_samples, N, J], each with its noise.

        f is drawn from its joint law, in O(N³) time, and y from p(y | f). Samples
        of labels are [num_samples, N], as `predict` returns them.

        :param seed: a whole number for the same samples in each call.
        """
        checks.count("num_samples", num_samples)
        checks.seed(seed)
        rows = self.inputs.standard(X)
        with inference():
            F = self.model.variational.sample(rows, num_samples, seed=seed)
        seeds = [None if seed is None else [seed, k] for k in (1, 2)]
        Y = draw(self.likelihood, rows, F, lambda: self.model.predict_f(rows)[0], seeds)
        if self.classes_ is not None:
            return np.asarray(self.classes_[np.asarray(Y[..., 0], dtype=int)])
        return np.asarray(units_of_predictions(self.likelihood, self.outputs).original(Y))

    def predict_proba(self, X: TensorType) -> Array:
        """Return the probabilities of the classes at X, where Y are labels: [N, J]."""
        require_classes(self.model)
        rows = self.inputs.validated(X)
        parts = [part._predictions.probabilities(rows)[0] for part in self.parts]
        return weighted(self.shares, parts)

    def entropies(self, X: TensorType) -> Entropies:
        """Return the total, aleatoric and epistemic entropy of the class at X: [N] each."""
        return entropies(self.model, self.inputs.standard(X))

    def score_ood(self, X: TensorType) -> Array:
        """Return the uncertainty of f at X, by which inputs unlike the data are found: [N].

        It is the variance of f, in standard units and averaged over outputs: around a network, it
        says how far features are from those of the data. With classes and no network it is the
        epistemic entropy, since a linear kernel varies least in the middle of the data.
        """
        if are_labels(self.likelihood) and isinstance(self.inputs, Scaling):
            return self.entropies(X).epistemic
        (variance,) = by_blocks(
            lambda rows: (self.model.predict_f(rows)[1],), self.inputs.standard(X)
        )
        return variance.mean(axis=-1)

    def predict_set(
        self,
        X: TensorType,
        coverage: float = 0.95,
        *,
        adaptive: bool = False,
        allow_empty: bool = False,
    ) -> Array:
        """Return the classes in a set that holds the label with the given probability.

        [N, J], booleans. They need `calibration_fraction`. Adaptive sets are larger, and their
        coverage varies less between easy and hard rows. Sets hold the most probable class, unless
        they are allowed to be empty.
        """
        if not isinstance(self.calibration, ConformalSets):
            raise ValueError(
                "predict_set: there are no sets of classes. Learn from labels, with a likelihood "
                "of classes and a calibration_fraction such as 0.2."
            )
        X = self.inputs.standard(X)
        return self.calibration.predict_set(X, coverage, adaptive=adaptive, allow_empty=allow_empty)

    def predict_interval(
        self, X: TensorType, coverage: float = 0.95
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the ends of an interval that holds y with the given probability: [N, J] each.

        With calibration data it has split conformal prediction's guarantee; without, it is between
        quantiles of the predictive law: of counts, whole numbers.
        """
        require_real_outputs(self.model)
        checks.coverage(coverage)
        calibration = self.calibration
        if is_gaussian(self.likelihood):
            deviations = half_width(self.likelihood, coverage)
            if isinstance(calibration, Conformal):
                deviations = calibration.quantile(coverage)
            mean, variance = self._predictions.standard_y(self.inputs.validated(X))
            lower, upper = around(mean, variance, deviations)
            return self.outputs.original(lower), self.outputs.original(upper)

        def interval(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if isinstance(calibration, ConformalQuantiles):
                return calibration.predict_interval(X, coverage)
            return central_interval(self.model, X, coverage)

        lower, upper = tensors_by_blocks(interval, self.inputs.standard(X))
        units = units_of_predictions(self.likelihood, self.outputs)
        return units.original(lower), units.original(upper)

    def predict_law(self, X: TensorType) -> Law:
        """Return the law of y at X under Gaussian noise, with `cdf`, `quantile` and `crps`: [N, J].

        Tails of Student's t, a log scale and a mixture are in it.
        """
        if not is_gaussian(self.likelihood):
            raise ValueError(
                f"predict_law is for real-valued y under Gaussian noise, but the likelihood is "
                f"{type(self.likelihood).__name__}. predict_interval has its quantiles."
            )
        rows = self.inputs.validated(X)
        return Law([(part._standard_law(rows), part.outputs) for part in self.parts], self.shares)

    def _standard_law(self, rows: tf.Tensor) -> Any:
        """Return the law of y in standard units, as SciPy has it."""
        mean, variance = by_blocks(self._predictions.standard_y, rows)
        df = degrees_of_freedom(self.likelihood)
        if df is None:
            return stats.norm(mean, np.sqrt(variance))
        df = df.numpy()
        return stats.t(df, mean, np.sqrt(variance * (df - 2.0) / df))

    def acquire(self, candidates: TensorType, kind: Kind, **options: Any) -> Array:
        """Return the value of an observation at each candidate: [N]. The largest is the best.

        For improvements the best known value is by default the smallest mean at an inducing point
        or a candidate. For "bald" it is the average over the parts of a mixture; with classes, the
        epistemic entropy.

        :param candidates: the inputs, [N, D].
        :param kind: "variance" or "bald", to learn; or "expected_improvement",
            "probability_of_improvement", "upper_confidence_bound" or "thompson", for the minimum.
        :param options: `best`, `beta` or `seed`, as of `prediction.acquisition.acquire`.
        """
        if kind == "bald":  # information has no unit
            if self.classes_ is not None:
                return self.entropies(candidates).epistemic
            X = self.inputs.standard(candidates)
            values = [acquire(part.model, X, kind, **options) for part in self.parts]
            return np.einsum("c,cn->n", self.weights, values)
        if self.classes_ is not None and kind != "variance":
            raise ValueError(
                f"kind is {kind!r}, which is for the minimum of y, but y is of classes. Take "
                "'bald' or 'variance'."
            )
        if "improvement" in kind and options.get("best") is None:
            known = self.model.predict_f(self.regulariser.inducing_points)[0]
            known = units_of_f(self.likelihood, self.outputs).original(known)
            options["best"] = min(np.min(known), np.min(self.predict_f(candidates)[0]))
        return acquire(self, candidates, kind, **options)

    def update(self, X: TensorType, Y: TensorType, *, num_inducing: int = 20) -> Learned:
        """Return the model conditioned on new rows as well, at their cost alone.

        Hyper-parameters, units and the tempering factor stay as they are; around a network its
        predictions, too, and only how far they are trusted is learned. Intervals and sets have no
        conformal guarantee until they are calibrated anew.

        :param X: the new inputs, [N, D].
        :param Y: the observations there; of outputs that were learned together some may be NaN.
        :param num_inducing: how many inducing points are added at most, where the new rows are far
            from the old ones.
        """
        if isinstance(self.model.variational.kernel, OutputAsInput):
            from .joint_outputs import updated_jointly

            return updated_jointly(self, X, Y, num_inducing)
        rows = (self.inputs.standard(X), self.standard_y(Y))
        if isinstance(self.outputs, LogScale) and not np.all(self.outputs.slope(rows[1]) > 0.0):
            raise ValueError(
                "Y has values that are not positive, but all were when the model was learned, on a "
                "log scale. Learn from all rows."
            )
        data = Data.of(rows, self.likelihood)
        model, regulariser = update(self.model, self.regulariser, data, num_inducing)
        return dataclasses.replace(
            self, model=model, regulariser=regulariser, history={}, calibration=None
        )

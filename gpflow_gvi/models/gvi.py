"""The model: a variational process Q that is pulled to the data and held by the regulariser P."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import InputData, MeanAndVariance, Parameter, RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.likelihoods import Likelihood
from gpflow.models import SVGP, GPModel
from gpflow.posteriors import PrecomputeCacheType

from .._core import checks, images, labels, outputs
from .._core.data import Data, inputs
from .._core.memo import memoised
from .._core.mode import frozen, inference
from .._core.network_function import penalties
from .._core.state import in_dtype
from ..covariances import SparseCovariance
from ..divergences import Divergence, InducingKL
from ..divergences.kl import inducing_kl
from ..errors import NoEvidenceBoundError
from ..gaussian_process import GaussianProcess, common_outputs
from ..likelihoods import (
    are_labels,
    degrees_of_freedom,
    is_gaussian,
    observed_columns,
    require_usable,
)
from ..losses import LogLoss, Loss
from ..training import Trainable
from ..training.guard import GuardedStep, LossTerms, require_finite
from ..training.trainable import warn_of_default_kernel
from .posterior import GVIPosterior

_unconverted = tf.autograph.experimental.do_not_convert
"""In a caller that AutoGraph converts: what is decided here is known when the graph is made, and to
convert all that is called would take many times longer than to trace it."""


class GVI(Trainable, SVGP):
    """Generalised variational inference for a Gaussian process.

    The training loss is

        N · ( average over the batch of E_Q[ℓ(f(x_n), y_n)]  +  λ · D[Q, P] )

    Knoblauch, Jewson and Damoulas (2022); on function spaces, Wild et al. (2022). The log loss, the
    divergence `InducingKL` and λ = 1 give GPflow's SVGP.

    P is frozen: `trainable_variables` are those of Q, and of the likelihood unless that is frozen,
    too (`gpflow.set_trainable(likelihood, False)`). As everywhere in GPflow, priors on trainable
    parameters enter the objective; N times the regularisers of the weights of networks, as well.

    :param regulariser: P = GP(m_P, k); the model's `mean_function` and `kernel`.
    :param variational: Q = GP(m_Q, r).
    :param likelihood: p(y | f(x)).
    :param divergence: D.
    :param num_data: N, the number of training points (of all of them, not of a batch). A callback
        may set it, and the weight.
    :param loss: ℓ, and in which way it meets Q; `LogLoss()` if not given.
    :param divergence_weight: λ. D is an average over inputs: λ = 1 is the sum of a projected one
        over the data, as in Wu (2023), and 1/N, as `GWI` has it, the W₂² of Wild et al. (2022).
    """

    def __init__(
        self,
        regulariser: GaussianProcess,
        variational: GaussianProcess,
        likelihood: Likelihood,
        divergence: Divergence,
        *,
        num_data: int | tf.Variable,
        loss: Loss | None = None,
        divergence_weight: float | tf.Variable = 1.0,
    ) -> None:
        loss = LogLoss() if loss is None else loss
        checks.instance("regulariser", regulariser, GaussianProcess)
        checks.instance("variational", variational, GaussianProcess)
        require_usable(likelihood)
        checks.instance("divergence", divergence, Divergence)
        checks.instance("loss", loss, Loss)
        checks.number_of_data(num_data)
        checks.positive_number("divergence_weight", divergence_weight, or_zero=True)
        divergence.check(variational, regulariser)
        loss.check(likelihood)
        # SVGP's own constructor would make variational parameters that nothing uses.
        GPModel.__init__(
            self,
            kernel=regulariser.kernel,
            likelihood=likelihood,
            mean_function=regulariser.mean_function,
            num_latent_gps=_num_outputs(variational, regulariser, likelihood),
        )
        self.variational = variational
        self.divergence = divergence
        self.loss = loss
        self.num_data = num_data
        self.divergence_weight = divergence_weight

    @property
    def regulariser(self) -> GaussianProcess:
        """P, the Gaussian process of the model's `mean_function` and `kernel`."""
        return GaussianProcess(self.mean_function, self.kernel)

    # What is trained: Q and the likelihood, never P.

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """The variables of Q and of the likelihood; those of P are frozen."""
        frozen = {id(variable) for variable in self.regulariser.variables}
        parts = (*self.variational.trainable_variables, *self.likelihood.trainable_variables)
        distinct = {id(variable): variable for variable in parts}
        return tuple(variable for key, variable in distinct.items() if key not in frozen)

    @property
    def trainable_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of Q and of the likelihood; those of P are frozen."""
        parts = (*self.variational.trainable_parameters, *self.likelihood.trainable_parameters)
        distinct = {id(parameter.unconstrained_variable): parameter for parameter in parts}
        trained = set(map(id, self.trainable_variables))
        return tuple(parameter for key, parameter in distinct.items() if key in trained)

    def log_prior_density(self) -> tf.Tensor:
        """Return the log density of priors, of P's hyper-parameters where they may be trained."""
        value = super().log_prior_density()
        value -= in_dtype(self.num_data, value.dtype) * penalties(self)
        if self.divergence.bounds_evidence:  # none of P's parameters is among the model's own
            value += sum(each.log_prior_density() for each in self.regulariser.trainable_parameters)
        return value

    # The objective.

    @_unconverted
    def loss_terms(self, data: RegressionData) -> LossTerms:
        """Return the average loss and the divergence at the rows of the data."""
        X, Y = self._observed(data)
        with frozen(self.regulariser):
            q, p = self.variational.at(X), self.regulariser.at(X)
            self.require_columns(q.num_outputs, Y)
            losses = self.loss(self.likelihood, q.X, q.mean, q.variance, Y)  # [N]
            divergence = self.divergence.compare(q, p, self.num_data)
        return LossTerms(tf.reduce_mean(losses), divergence)

    @_unconverted
    def training_loss(self, data: RegressionData) -> tf.Tensor:
        """Return the training loss of these rows of data: []."""
        return super().training_loss(self._observed(data))

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        terms = self.loss_terms((X, Y))
        dtype = terms.loss.dtype
        N, weight = (in_dtype(value, dtype) for value in (self.num_data, self.divergence_weight))
        total = N * (terms.loss + weight * terms.divergence) - self.log_prior_density()
        return total + self._touched(dtype), terms

    def _touched(self, dtype: tf.DType) -> tf.Tensor:
        """Return zero, as a function of the covariance's variables.

        Marginals of a stationary kernel do not depend on its lengthscales. With this their gradient
        is zero, which every optimiser takes, instead of None, which some refuse.
        """
        zero = tf.zeros([], dtype=dtype)
        for variable in self.variational.kernel.trainable_variables:
            zero += tf.cast(0.0 * tf.reduce_sum(variable), dtype)
        return zero

    def _training_loss(self, data: RegressionData) -> tf.Tensor:
        with memoised():
            total, terms = self._objective(*data)
        return require_finite(total, terms, self._term_names)

    @property
    def _term_names(self) -> tuple[str, str]:
        return type(self.loss).__name__, type(self.divergence).__name__

    def training_loss_closure(
        self, data: RegressionData | tf.data.Iterator, *, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """Return a closure that computes the training loss, for any GPflow or Keras optimiser.

        Arrays are validated here, once. If the loss ever is not finite,
        the closure restores the variables of its last finite value and raises. Made inside a
        `tf.function`, where nothing can be kept, it is `training_loss`, which only raises.

        :param data: (X, Y), or an iterator over batches of them.
        :param compile: whether to compile the step; it is traced once.
        """
        if tf.inside_function():
            return lambda: self.training_loss(
                next(data) if isinstance(data, tf.data.Iterator) else data
            )
        warn_of_default_kernel(None if isinstance(self.divergence, InducingKL) else self.kernel)
        step = GuardedStep(self)
        if isinstance(data, tf.data.Iterator):
            batch, spec = functools.partial(next, data), data.element_spec
            return step.closure(batch, compile=compile, signature=spec)
        rows = Data.of(data, self.likelihood)
        rows.warn_of_missing_classes()
        return step.closure(lambda: rows, compile=compile)

    # The evidence lower bound, where the objective is one.

    @_unconverted
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """Return the evidence lower bound, which is minus the objective if that is one at all."""
        with tf.init_scope():  # the weight may be a variable
            weight = float(tf.convert_to_tensor(self.divergence_weight))
        is_bound = type(self.loss) is LogLoss and type(self.divergence) is InducingKL
        if not is_bound or weight != 1.0:
            raise NoEvidenceBoundError(
                f"There is no evidence lower bound with the loss {self._term_names[0]}, the "
                f"divergence {self._term_names[1]} and divergence_weight {weight:.6g}: minus the "
                "training loss bounds the log evidence only for LogLoss, InducingKL and 1. Use "
                "training_loss(data) to compare fits of this objective, and "
                "predict_log_density(held-out data) to compare models."
            )
        with memoised():
            total, _ = self._objective(*self._observed(data))
        return -total - self.log_prior_density()

    def prior_kl(self) -> tf.Tensor:
        """Return KL[Q, P], where it is finite: for an inducing distribution on P's kernel."""
        try:
            return inducing_kl(self.variational, self.regulariser, self.num_latent_gps)
        except (TypeError, ValueError) as error:
            raise NoEvidenceBoundError(f"prior_kl is not defined: {error}") from error

    # Predictions.

    def __call__(self, X: InputData) -> tf.Tensor:
        """Return the mean of f at X, [N, J], as a tensor; `predict` returns that of y."""
        return self.predict_f(X)[0]

    def _predictive_mean(self, X: InputData) -> tf.Tensor:
        return self.predict_y(X)[0]

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> GVIPosterior:
        """Return Q with its factorisations computed, for many predictions."""
        return GVIPosterior(self.variational, precompute_cache=precompute_cache)

    @_unconverted
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance of Q at Xnew, in GPflow's shapes."""
        with memoised(), inference():
            return self.variational.predict(self._rows(Xnew), full_cov, full_output_cov)

    @_unconverted
    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and variance of y at Xnew, in GPflow's shapes."""
        X = self._rows(Xnew)
        if are_labels(self.likelihood):
            images.require_rows(X, self.variational)
        return super().predict_y(X, full_cov, full_output_cov)

    @_unconverted
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Return the log density of each observed y, all columns of a row together: [N].

        Under Gaussian noise they are as correlated as the outputs of Q are. Under any other
        likelihood, and with the tails of Student's t, it is GPflow's sum over the columns.
        """
        X, Y = self._observed(data)
        noise, kernel = self.likelihood, self.variational.kernel
        has_joint_law = is_gaussian(noise) and degrees_of_freedom(noise) is None
        if full_cov or full_output_cov or not has_joint_law or not outputs.correlated(kernel):
            return super().predict_log_density((X, Y), full_cov, full_output_cov)
        self.require_columns(outputs.num_outputs(kernel), Y)
        mean, covariance = self.predict_f(X, full_output_cov=True)
        covariance += tf.linalg.diag(noise.conditional_variance(X, mean))
        law = tfp.distributions.MultivariateNormalTriL(mean, tf.linalg.cholesky(covariance))
        return law.log_prob(Y)

    @_unconverted
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Return samples of Q at Xnew, [num_samples, N, J], or one of [N, J]; joint if `full_cov`.

        GPflow's own way to joint samples adds a fixed jitter, too little for float32.
        """
        Xnew = self._rows(Xnew)
        if not full_cov or full_output_cov or (Xnew.shape.rank or 0) > 2:  # that is a batch
            return super().predict_f_samples(Xnew, num_samples, full_cov, full_output_cov)
        with memoised(), inference():
            samples = self.variational.sample(Xnew, 1 if num_samples is None else num_samples)
        return samples[0] if num_samples is None else samples

    def _observed(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Return data validated as far as their values are known, with images as rows."""
        X, Y = Data.of(data, self.likelihood)
        X = self._rows(X)
        images.require_rows(X, self.variational)
        return X, labels.observed(self.likelihood, Y)

    def _rows(self, X: InputData) -> tf.Tensor:
        """Return images as rows, if any part of P and Q says that one input is an image."""
        return images.as_rows(inputs("X", X), self.variational, self.mean_function, self.kernel)

    # SVGP's names for the parts of Q, where Q has them.

    @property
    def inducing_variable(self) -> InducingVariables:  # type: ignore[override]
        """The inducing variable of Q's covariance."""
        kernel = self.variational.kernel
        for part in (kernel, *kernel.submodules):
            if isinstance(part, SparseCovariance):
                return part.inducing_variable
        raise AttributeError(
            f"inducing_variable: the covariance of this Q, {type(kernel).__name__}, has none."
        )

    @property
    def q_mu(self) -> Parameter:  # type: ignore[override]
        """The mean of the inducing variable under Q, [M, J], if Q has mean `Inducing`."""
        mean: Any = self.variational.mean_function
        return mean.q_mu

    @property
    def q_sqrt(self) -> Parameter:  # type: ignore[override]
        """The factor of the inducing variable's covariance, [J, M, M], for `CholeskySVGP`."""
        covariance: Any = self.variational.kernel
        return covariance.q_sqrt

    @property
    def whiten(self) -> bool:  # type: ignore[override]
        """Whether q_mu and q_sqrt are those of L⁻¹u."""
        parts: Any = self.variational.mean_function, self.variational.kernel
        of_mean, of_covariance = (bool(part.whiten) for part in parts)
        if of_mean != of_covariance:
            raise AttributeError("whiten: it differs between Q's mean and Q's covariance.")
        return of_mean

    def require_columns(self, num_outputs: int, Y: Any) -> None:
        """Raise unless observations have the columns that the likelihood and Q ask for."""
        _require_latent_dim(self.likelihood, num_outputs)
        columns = Y.shape[-1]
        wanted = observed_columns(self.likelihood, num_outputs)
        if wanted is not None and columns is None:  # in a graph
            message = "Y must have as many columns as Q has outputs."
            tf.debugging.assert_equal(tf.shape(Y)[-1], wanted, message)
        elif wanted not in (None, columns):
            raise ValueError(
                f"Y has {columns} columns, but Q has {num_outputs} outputs. Pass num_latent_gps="
                f"{columns} to the mean or the covariance of Q, or a multi-output kernel."
            )


def _num_outputs(
    variational: GaussianProcess, regulariser: GaussianProcess, likelihood: Likelihood
) -> int:
    """Return the number J of outputs of Q, on which P and the likelihood agree."""
    shape = images.input_shape(variational, regulariser)
    if shape is None:  # whether all parts agree shows at the first data
        return variational.num_outputs or outputs.num_outputs(variational.kernel)
    J = common_outputs(variational, regulariser, shape)
    _require_latent_dim(likelihood, J)
    return J


def _require_latent_dim(likelihood: Likelihood, num_outputs: int) -> None:
    wanted = likelihood.latent_dim
    if wanted is not None and wanted != num_outputs:
        raise ValueError(
            f"likelihood {type(likelihood).__name__} is for {wanted} latent functions, but Q has "
            f"{num_outputs}. Pass num_latent_gps={wanted} to the mean or the covariance of Q, or a "
            "multi-output kernel."
        )

"""A layer for GPflux: deep Gaussian processes with any divergence from the prior of each layer.

Salimbeni and Deisenroth (2017), "Doubly stochastic variational inference for deep Gaussian
processes", with a divergence of `divergences` in place of each layer's KL.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflux.layers.gp_layer import GPLayer
from gpflux.sampling.sample import Sample

from .._core import checks
from .._core.images import as_rows, input_shape
from .._core.memo import memoised
from .._core.mode import frozen, training
from .._core.state import in_dtype
from ..divergences import Divergence
from ..divergences.kl import inducing_kl
from ..gaussian_process import GaussianProcess, common_outputs
from ..prediction.samples import FunctionSamples, draw_functions


class GVILayer(GPLayer):
    """A layer Q = GP(m_Q, r) with regulariser P = GP(m_P, k), for GPflux's `DeepGP` or Keras.

    In training it adds λ · D[Q, P] to the loss of a data point, so that N times the loss of a
    `DeepGP` is

        N · ( average over the batch of E[-log p(y_n | f_L(x_n))]  +  Σ_l λ_l · D_l[Q_l, P_l] )

    D_l is evaluated at the inputs of the layer: the batch in the first layer, and in the others the
    samples of the previous layer, over which it is averaged. With S samples of each input
    (`num_samples`) these are S·N rows, which are a large batch for a divergence that is not a
    projected one. With `InducingKL` and an SVGP's Q the layer is GPflux's `GPLayer`.

    P is frozen, as in `GVI`: k and m_P are not among the trainable weights. Priors on trainable
    parameters enter the loss.

    :param regulariser: P.
    :param variational: Q.
    :param divergence: D.
    :param num_data: N, the number of training points (of all of them, not of a batch).
    :param divergence_weight: λ.
    :param num_samples: the number of samples of each input, as in `GPLayer`.
    :param full_cov: whether samples at different inputs are joint.
    :param full_output_cov: whether samples of different outputs are joint.
    """

    # For GPflow, which collects variables without Keras: Q alone is trained.
    _TF_MODULE_IGNORED_PROPERTIES = GPLayer._TF_MODULE_IGNORED_PROPERTIES | {
        "_self_tracked_trackables",
        "_trainable_weights",
        "divergence",
        "divergence_weight",
        "regulariser",
    }

    def __init__(
        self,
        regulariser: GaussianProcess,
        variational: GaussianProcess,
        divergence: Divergence,
        *,
        num_data: int,
        divergence_weight: float | tf.Variable = 1.0,
        num_samples: int | None = None,
        full_cov: bool = False,
        full_output_cov: bool = False,
        name: str | None = None,
    ) -> None:
        checks.instance("regulariser", regulariser, GaussianProcess)
        checks.instance("variational", variational, GaussianProcess)
        checks.instance("divergence", divergence, Divergence)
        checks.number_of_data(num_data)
        checks.positive_number("divergence_weight", divergence_weight, or_zero=True)
        if num_samples is not None:
            checks.count("num_samples", num_samples)
        if full_cov and full_output_cov:
            raise ValueError(
                "full_cov and full_output_cov are both True, for which GPflux has no distribution; "
                "pass one of them. predict takes both."
            )
        divergence.check(variational, regulariser)
        # GPLayer's own constructor would make variational parameters that nothing uses.
        super(GPLayer, self).__init__(
            make_distribution_fn=self._make_distribution_fn,
            convert_to_tensor_fn=self._convert_to_tensor_fn,
            dtype=default_float(),
            name=name,
        )
        self.regulariser = regulariser
        self.variational = variational
        self.divergence = divergence
        self.num_data = num_data
        self.divergence_weight = divergence_weight
        self.num_samples = num_samples
        self.full_cov = full_cov
        self.full_output_cov = full_output_cov
        row_shape = input_shape(variational, regulariser)
        if row_shape is None:
            raise ValueError(
                "variational has no inducing points, and no network that declares the shape of one "
                "input. Give its covariance inducing points."
            )
        self._row_shape = row_shape
        self.num_latent_gps = common_outputs(variational, regulariser, row_shape)

    # What is trained: Q, never P.

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The variables of Q; those of P are frozen."""
        frozen = {id(variable) for variable in self.regulariser.variables}
        found = self.variational.trainable_variables if self.trainable else ()
        return [variable for variable in found if id(variable) not in frozen]

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """All other variables, those of P among them."""
        trained = {id(variable) for variable in self.trainable_weights}
        found = super().trainable_weights + super().non_trainable_weights
        return [variable for variable in found if id(variable) not in trained]

    # AutoGraph would take longer to convert the code than TensorFlow to trace it.
    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: TensorType, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Return the distribution of the outputs, and add the divergence to the loss."""
        X = self._sized(tf.convert_to_tensor(inputs))  # a sample of the previous layer
        in_training = bool(kwargs.get("training"))
        loss = tf.zeros([], default_float())
        with memoised(), training(in_training), frozen(self.regulariser):
            # GPLayer's own would add its KL.
            outputs = super(GPLayer, self).call(X, *args, **kwargs)
            if in_training:
                loss = self._loss(X)
        self.add_loss(loss)
        self.add_metric(loss, name=f"{self.name}_divergence", aggregation="mean")
        return outputs

    def _sized(self, X: tf.Tensor) -> tf.Tensor:
        """Return the inputs with as many columns as the processes take, or raise."""
        wanted = math.prod(self._row_shape)
        if X.shape[-1] is None:  # in a DeepGP without input_dim
            return tf.ensure_shape(X, [*X.shape[:-1], wanted])
        if X.shape[-1] not in (wanted, self._row_shape[-1]):
            raise ValueError(
                f"layer {self.name} gets inputs of {X.shape[-1]} columns, but its processes take "
                f"inputs of shape {self._row_shape}. Give the layer before it as many outputs, or "
                "place the inducing points among its outputs."
            )
        return X

    def _loss(self, X: tf.Tensor) -> tf.Tensor:
        """Return λ · D - log p(parameters) / N."""
        X = as_rows(X, self.variational, self.regulariser)
        if X.shape.rank > 2:  # several samples of each input
            X = tf.reshape(X, [-1, X.shape[-1]])
        q, p = self.variational.at(X), self.regulariser.at(X)
        divergence = self.divergence.compare(q, p, self.num_data)
        trained = {id(variable) for variable in self.trainable_weights}
        log_prior = sum(
            parameter.log_prior_density()
            for parameter in self.variational.trainable_parameters
            if parameter.prior is not None and id(parameter.unconstrained_variable) in trained
        )
        weight = in_dtype(self.divergence_weight, divergence.dtype)
        return weight * divergence - log_prior / self.num_data

    def prior_kl(self) -> tf.Tensor:
        """Return KL[Q, P], where it is finite: for an inducing distribution on P's kernel."""
        return inducing_kl(self.variational, self.regulariser, self.num_latent_gps)

    def predict(
        self, inputs: TensorType, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance of Q at the inputs, in GPflow's shapes."""
        return self.variational.predict(inputs, full_cov, full_output_cov)

    def sample(self, *, seed: int | None = None) -> Sample:
        """Return a function drawn from Q by `sampling.draw_functions`.

        :param seed: the same seed gives the same function.
        """
        return _FunctionSample(draw_functions(self.variational, 1, seed=seed))


class _FunctionSample(Sample):
    """The only function of a draw, as a `Sample` of GPflux."""

    def __init__(self, functions: FunctionSamples) -> None:
        self._functions = functions

    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the values at the rows of X: [N, J]."""
        return self._functions(X)[0]

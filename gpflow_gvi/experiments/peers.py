"""The models that those of this package are compared with, on the same data.

Each is trained on the rows for training, and may use those for validation as the others do: to
stop, or to find the size of the noise. Real-valued outputs only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np

import gpflow_gvi as gvi

from .layer_parts import DEFAULT, Layers, network
from .parts import BY_KIND, OR_NAME, Count, Part, Positive
from .training_parts import descend

if TYPE_CHECKING:
    import tensorflow as tf
    from gpflow.base import MeanAndVariance, RegressionData, TensorType

    from ..learning.scaling import Scaling

Array = np.ndarray[Any, Any]

RowsByRole = dict[str, tuple[Array, Array]]
"""Rows in standard units, by what they are for."""

Moments: TypeAlias = "Callable[[TensorType], MeanAndVariance]"
"""From inputs to means and variances of y."""


class GVI(Part):
    """The model of this package that the other parts of the experiment describe."""

    kind: Literal["gvi"] = "gvi"


class SVGP(Part):
    """GPflow's SVGP with an ARD kernel and inducing points that move."""

    kind: Literal["svgp"] = "svgp"
    inducing: Count = 200
    full_batch: Count = 2000
    """The maximal number of rows that are fitted by L-BFGS; more are fitted by Adam in batches."""
    iterations: Count = 1000
    """The maximal number of iterations of L-BFGS."""
    steps: Count = 10_000
    """The number of steps of Adam."""
    batch_size: Count = 500

    def fit(self, rows: RowsByRole, seed: int) -> Moments:
        """Return what it predicts after it was fitted."""
        import gpflow
        import keras
        import tensorflow as tf
        from keras.optimizers.schedules import CosineDecay

        X, Y = rows["train"]
        Z = gvi.inducing.kmeans(X, min(self.inducing, len(X)), seed=seed).points
        likelihood = gpflow.likelihoods.Gaussian(0.1)
        J = Y.shape[1]
        model = gpflow.models.SVGP(_ard(X), likelihood, Z, num_latent_gps=J, num_data=len(X))
        if len(X) <= self.full_batch:
            _minimise(model, model.training_loss_closure((X, Y)), self.iterations)
        else:
            batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(len(X), seed=seed)
            batches = batches.batch(self.batch_size)
            optimizer = keras.optimizers.Adam(CosineDecay(0.01, self.steps))
            loss = model.training_loss_closure(iter(batches))
            descend(loss, model.trainable_variables, optimizer, self.steps)
        return model.predict_y


class ExactGP(Part):
    """GPflow's GPR with an ARD kernel; its time grows with N³."""

    kind: Literal["exact_gp"] = "exact_gp"
    max_rows: Count = 2000
    """The maximal number of rows; more are refused."""
    iterations: Count = 1000

    def fit(self, rows: RowsByRole, seed: int) -> Moments:
        """Return what it predicts after it was fitted."""
        import gpflow

        X, Y = rows["train"]
        if len(X) > self.max_rows:
            raise ValueError(
                f"model.max_rows is {self.max_rows}, but there are {len(X)} rows to train with: "
                "raise it, or leave this data set out for exact_gp."
            )
        model = gpflow.models.GPR((X, Y), _ard(X), noise_variance=0.1)
        _minimise(model, model.training_loss, self.iterations)
        return model.predict_y


class Network(Part):
    """A network, or an ensemble of some, trained by maximum likelihood with one noise for all rows.

    Training ends when the validation data gain no more; the noise is that of their residuals. An
    ensemble adds the variance of its means (Lakshminarayanan, Pritzel and Blundell 2017).
    """

    kind: Literal["network"] = "network"
    layers: Layers = DEFAULT
    members: Count = 1
    epochs: Count = 2000
    """The maximal number of epochs."""
    patience: Count = 50
    """The number of epochs without a gain after which training stops."""
    learning_rate: Positive = 3e-3

    def fit(self, rows: RowsByRole, seed: int) -> Moments:
        """Return what it predicts after it was fitted."""
        if "validation" not in rows:
            raise ValueError("split.validation is 0, but a network needs rows to stop by; raise it")
        members = [self._trained(rows, seed + 1000 * number) for number in range(self.members)]
        X, Y = rows["validation"]
        noise = np.mean(np.square(Y - _means(members, X).mean(axis=0)), axis=0)

        def moments(X: TensorType) -> MeanAndVariance:
            means = _means(members, X)
            return means.mean(axis=0), means.var(axis=0) + noise

        return moments

    def _trained(self, rows: RowsByRole, seed: int) -> Any:
        import keras

        X, Y = rows["train"]
        net = network(self.layers, (X.shape[1],), readout=Y.shape[1], seed=seed)
        keras.utils.set_random_seed(seed)
        net.compile(keras.optimizers.Adam(self.learning_rate), "mse", steps_per_execution=10)
        stop = keras.callbacks.EarlyStopping(patience=self.patience, restore_best_weights=True)
        net.fit(
            X,
            Y,
            batch_size=max(32, len(X) // 50),
            epochs=self.epochs,
            validation_data=rows["validation"],
            callbacks=[stop],
            verbose=0,
        )
        return net


Model = Annotated[GVI | SVGP | ExactGP | Network, BY_KIND, OR_NAME]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A model that takes and returns original units."""

    moments: Moments
    """In standard units."""
    inputs: Scaling
    outputs: Scaling

    def predict_y(self, X: TensorType) -> MeanAndVariance:
        """Return mean and variance of y at X: [N, J] each."""
        mean, variance = self.moments(self.inputs.standard(X))
        return self.outputs.original(mean), variance * self.outputs.scale**2

    def predict_log_density(self, data: RegressionData) -> Array:
        """Return the log density of each observed y: [N]."""
        mean, variance = self.predict_y(data[0])
        from scipy import stats

        found: Array = stats.norm.logpdf(data[1], mean, np.sqrt(variance)).sum(axis=1)
        return found


def _means(members: list[Any], X: TensorType) -> Array:
    return np.stack([np.asarray(net(X), dtype=float) for net in members])


def _ard(X: Array) -> Any:
    import gpflow

    D = X.shape[1]
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))


def _minimise(model: Any, loss: Callable[[], tf.Tensor], iterations: int) -> None:
    import gpflow

    options = {"maxiter": iterations}
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=options)

"""The models that those of this package are compared with, on the same data.

Each is trained on the rows for training, and may use those for validation as the others do: to
stop, or to find the size of the noise. Real-valued outputs only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np

import gpflow_gvi as gvi

from .layer_kinds import DEFAULT, Layers, network
from .part import Count, Positive, gpflow, keras, one_of, tf

if TYPE_CHECKING:
    from gpflow.base import MeanAndVariance, RegressionData, TensorType

    from ...learning import Scaling, Units

Array = np.ndarray[Any, Any]

Moments: TypeAlias = "Callable[[TensorType], MeanAndVariance]"
"""From inputs to means and variances of y."""


class PeerRun(NamedTuple):
    """What a run supplies to a model."""

    rows: dict[str, tuple[Array, Array]]
    """In standard units, by what they are for."""
    seed: int


def described(run: PeerRun) -> Moments:
    """The model of this package that the other parts of the experiment describe."""
    raise NotImplementedError("It is what the procedure of learn makes.")


def svgp(
    run: PeerRun,
    inducing: Count = 200,
    full_batch: Count = 2000,
    iterations: Count = 1000,
    steps: Count = 10_000,
    batch_size: Count = 500,
) -> Moments:
    """GPflow's SVGP with an ARD kernel and inducing points that move.

    :param full_batch: The maximal number of rows that are fitted by L-BFGS; more are fitted by Adam
        in batches.
    :param iterations: The maximal number of iterations of L-BFGS.
    :param steps: The number of steps of Adam.
    """
    X, Y = run.rows["train"]
    Z = gvi.inducing.kmeans(X, min(inducing, len(X)), seed=run.seed).points
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    J = Y.shape[1]
    model = gpflow.models.SVGP(_ard(X), likelihood, Z, num_latent_gps=J, num_data=len(X))
    if len(X) <= full_batch:
        _minimise(model, model.training_loss_closure((X, Y)), iterations)
    else:
        batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(len(X), seed=run.seed)
        loss = model.training_loss_closure(iter(batches.batch(batch_size)))
        optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, steps))
        optimizer.build(variables := list(model.trainable_variables))

        @tf.function(autograph=False)
        def step() -> None:
            with tf.GradientTape() as tape:
                value = loss()
            gradients = tape.gradient(value, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        for _ in range(steps):
            step()
    return model.predict_y


def exact_gp(run: PeerRun, max_rows: Count = 2000, iterations: Count = 1000) -> Moments:
    """GPflow's GPR with an ARD kernel; its time grows with N³.

    :param max_rows: The maximal number of rows; more are refused.
    """
    X, Y = run.rows["train"]
    if len(X) > max_rows:
        raise ValueError(
            f"model.max_rows is {max_rows}, but there are {len(X)} rows to train with: raise it, "
            "or leave this data set out for exact_gp."
        )
    model = gpflow.models.GPR((X, Y), _ard(X), noise_variance=0.1)
    _minimise(model, model.training_loss, iterations)
    return model.predict_y


def networks(
    run: PeerRun,
    layers: Layers = DEFAULT,
    members: Count = 1,
    epochs: Count = 2000,
    patience: Count = 50,
    learning_rate: Positive = 3e-3,
) -> Moments:
    """A network, or an ensemble of some, trained by maximum likelihood with one noise for all rows.

    Training ends when the validation data gain no more; the noise is that of their residuals. An
    ensemble adds the variance of its means (Lakshminarayanan, Pritzel and Blundell 2017).

    :param epochs: The maximal number of epochs.
    :param patience: The number of epochs without a gain after which training stops.
    """
    if "validation" not in run.rows:
        raise ValueError("split.validation is 0, but a network needs rows to stop by; raise it")

    def trained(seed: int) -> Any:
        X, Y = run.rows["train"]
        net = network(layers, (X.shape[1],), readout=Y.shape[1], seed=seed)
        keras.utils.set_random_seed(seed)
        net.compile(keras.optimizers.Adam(learning_rate), "mse", steps_per_execution=10)
        stop = keras.callbacks.EarlyStopping(patience=patience, restore_best_weights=True)
        net.fit(
            X,
            Y,
            batch_size=max(32, len(X) // 50),
            epochs=epochs,
            validation_data=run.rows["validation"],
            callbacks=[stop],
            verbose=0,
        )
        return net

    ensemble = [trained(run.seed + 1000 * number) for number in range(members)]
    X, Y = run.rows["validation"]
    noise = np.mean(np.square(Y - _means(ensemble, X).mean(axis=0)), axis=0)

    def moments(X: TensorType) -> MeanAndVariance:
        means = _means(ensemble, X)
        return means.mean(axis=0), means.var(axis=0) + noise

    return moments


MODELS = {"gvi": described, "svgp": svgp, "exact_gp": exact_gp, "network": networks}
Model = Annotated[Any, one_of("Model", MODELS)]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A model that takes and returns original units."""

    moments: Moments
    """In standard units."""
    inputs: Scaling
    outputs: Units

    def predict_y(self, X: TensorType) -> MeanAndVariance:
        """Return mean and variance of y at X: [N, J] each."""
        return self.outputs.moments(*self.moments(self.inputs.standard(X)))

    def predict_log_density(self, data: RegressionData) -> Array:
        """Return the log density of each observed y: [N]."""
        mean, variance = self.predict_y(data[0])
        from scipy import stats

        found: Array = stats.norm.logpdf(data[1], mean, np.sqrt(variance)).sum(axis=1)
        return found


def _means(members: list[Any], X: TensorType) -> Array:
    return np.stack([np.asarray(net(X), dtype=float) for net in members])


def _ard(X: Array) -> Any:
    D = X.shape[1]
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))


def _minimise(model: Any, loss: Callable[[], Any], iterations: int) -> None:
    loss = tf.autograph.experimental.do_not_convert(loss)  # slow, and GPflow needs none
    options = {"maxiter": iterations}
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options=options)

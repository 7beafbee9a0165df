"""A deep Gaussian process of two layers, each with a divergence of its own from its prior."""

import gpflow
import gpflux
import numpy as np
from gpflow.keras import tf_keras

import gpflow_gvi as gvi

tf_keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, size=(200, 1))
Y = np.sign(X) + 0.05 * rng.normal(size=X.shape)  # a step, which one stationary layer smooths


def layer(mean, divergence):
    """Return a layer whose Q starts near P = GP(mean, kernel)."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    Z = gpflow.inducing_variables.InducingPoints(np.linspace(-1.0, 1.0, 15)[:, None])
    P = gvi.GaussianProcess(mean, kernel)
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(kernel, Z, mean_function=mean),
        gvi.covariances.CholeskySVGP(kernel, Z, q_sqrt=0.1 * np.eye(15)[None]),
    )
    return gvi.layers.GVILayer(P, Q, divergence, num_data=len(X), divergence_weight=0.01)


model = gpflux.models.DeepGP(
    [
        layer(gpflow.functions.Identity(), gvi.divergences.ProjectedRenyi(0.5)),
        layer(gpflow.functions.Zero(), gvi.divergences.GaussianWasserstein("marginal")),
    ],
    gpflow.likelihoods.Gaussian(0.1),
)
training = model.as_training_model()
training.compile(tf_keras.optimizers.Adam(0.02))
history = training.fit({"inputs": X, "targets": Y}, batch_size=100, epochs=100, verbose=0).history
for name, values in history.items():
    print(f"{name:<24}{values[0]:8.3f} -> {values[-1]:.3f}")

# The law of y is a mixture over the samples of the first layer.
x = np.linspace(-1.5, 1.5, 13)[:, None]
prediction = model.as_prediction_model()
samples = [prediction(x) for _ in range(20)]
means = np.stack([sample.y_mean for sample in samples])
variance = means.var(axis=0) + np.mean([sample.y_var for sample in samples], axis=0)
print("     x    mean  deviation")
for row in np.c_[x, means.mean(axis=0), np.sqrt(variance)]:
    print("{:6.2f}  {:6.2f}  {:9.2f}".format(*row))

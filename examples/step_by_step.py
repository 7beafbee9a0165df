"""The procedure by hand: regulariser, variational process, training, tempering, calibration."""

import gpflow
import keras
import numpy as np

import gpflow_gvi as gvi

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(400, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)
training, validation, calibration = (
    (X[part], Y[part]) for part in (slice(0, 200), slice(200, 300), slice(300, 400))
)

# The regulariser P: select inducing points, fit hyper-parameters, repeat until the points repeat.
regulariser = gvi.fit_regulariser(training, gpflow.kernels.SquaredExponential(), 15)
P, Z, noise = regulariser.posterior, regulariser.inducing_points, regulariser.likelihood.variance
print("rounds:", [round(entry.loss, 3) for entry in regulariser.history], regulariser.converged)

# The variational Q: the mean of a sparse GP plus a Keras network, and the covariance of SVGP.
kernel = regulariser.prior.kernel
Z = gpflow.inducing_variables.InducingPoints(Z)
network = keras.Sequential(
    [keras.Input((1,)), keras.layers.Dense(20, "tanh"), keras.layers.Dense(1)]
)
mean = gvi.mean_functions.Inducing.from_data(kernel, Z, training, noise)
covariance = gvi.covariances.CholeskySVGP.from_data(kernel, Z, training[0], noise)
Q = gvi.GaussianProcess(mean + gvi.mean_functions.Network(network), covariance)

# Train as in Keras; temper on the validation set; conformal intervals from the calibration set.
model = gvi.models.PGVI(P, Q, regulariser.likelihood, num_data=len(training[0]))
model.compile(keras.optimizers.Adam(1e-2))
model.fit(
    training,
    epochs=200,
    batch_size=100,
    validation_data=validation,
    callbacks=[keras.callbacks.EarlyStopping(patience=50, restore_best_weights=True)],
    verbose=0,
)
tempered = gvi.temper(model, validation)
intervals = gvi.conformal(tempered, calibration)

print("factor:", tempered.variational.kernel.factor.numpy().round(3))
print({name: round(value, 3) for name, value in gvi.metrics.evaluate(model, calibration).items()})
x = np.linspace(-4.0, 4.0, 9)[:, None]
lower, upper = intervals.predict_interval(x, coverage=0.9)
print(np.c_[x, np.sin(2.0 * x), lower, upper].round(2))

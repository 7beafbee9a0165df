"""The shortest useful program: a projected GVI-GP on a noisy sine."""

import gpflow
import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(200, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)

kernel = gpflow.kernels.SquaredExponential()
Z = X[::20]
P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
Q = gvi.GaussianProcess(
    gvi.mean_functions.Inducing.from_data(kernel, Z, (X, Y), noise_variance=0.01),
    gvi.covariances.CholeskySVGP.from_data(kernel, Z, X, noise_variance=0.01),
)
model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.01), num_data=len(X))
loss = model.training_loss_closure((X, Y))
gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 200})

mean, variance = model.predict_y(np.linspace(-3.0, 3.0, 7)[:, None])
print(np.c_[mean, np.sqrt(variance)].round(2))

"""The shortest useful program: a projected GVI-GP on a noisy sine, with what it learned."""

import gpflow
import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(200, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)
Z = np.linspace(-3.0, 3.0, 13)[:, None]
minimise = gpflow.optimizers.Scipy().minimize

# The regulariser P: a prior whose hyper-parameters, and the noise, are fitted first.
prior = gpflow.models.GPR((X, Y), gpflow.kernels.SquaredExponential())
minimise(prior.training_loss, prior.trainable_variables)
kernel, noise = prior.kernel, prior.likelihood.variance
P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)

# The variational Q: any mean function, any of the covariances; here both on inducing points.
mean = gvi.mean_functions.Inducing.from_data(kernel, Z, (X, Y), noise)
covariance = gvi.covariances.CholeskySVGP.from_data(kernel, Z, X, noise)
Q = gvi.GaussianProcess(mean, covariance)

likelihood = gpflow.likelihoods.Gaussian(noise)
gpflow.set_trainable(likelihood, False)
model = gvi.models.PGVI(P, Q, likelihood, num_data=len(X))
options = {"maxiter": 200}
minimise(model.training_loss_closure((X, Y)), model.trainable_variables, options=options)

x = np.linspace(-4.0, 4.0, 9)[:, None]
f_mean, f_variance = model.predict_f(x)
print(np.c_[x, np.sin(2.0 * x), f_mean, np.sqrt(f_variance)].round(2))

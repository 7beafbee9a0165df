"""Learn a model, export it, and serve its predictions with TensorFlow alone."""

import tempfile

import numpy as np
import tensorflow as tf


def export(folder):
    """Learn from data in original units, and export the model."""
    import gpflow

    import gpflow_gvi as gvi

    rng = np.random.default_rng(0)
    X = rng.uniform(10.0, 16.0, size=(200, 1))
    Y = 1000.0 + 50.0 * np.sin(X) + 5.0 * rng.normal(size=X.shape)
    learned = gvi.learn((X, Y), kernel=gpflow.kernels.SquaredExponential(), epochs=3)
    gvi.export(learned, folder, overwrite=True)


def serve(folder):
    """Predict; this part could be another program, in an environment without GPflow."""
    served = tf.saved_model.load(folder)  # keep this object while its signature is used
    predict = served.signatures["predict"]
    x = np.linspace(9.0, 17.0, 9)[:, None]
    predicted = predict(X=tf.constant(x))
    print("     x      mean  deviation of f  of y")
    columns = (x, predicted["mean"], predicted["f_variance"] ** 0.5, predicted["variance"] ** 0.5)
    for row in np.concatenate(columns, axis=1):
        print("{:6.1f}  {:8.1f}  {:14.1f}  {:4.1f}".format(*row))


with tempfile.TemporaryDirectory() as folder:
    export(folder + "/model")
    serve(folder + "/model")

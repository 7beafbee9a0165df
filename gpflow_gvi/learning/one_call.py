"""The whole procedure in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core import checks, progress, row_numbers
from .._core.data import Data
from ..divergences import Divergence
from ..likelihoods import is_gaussian
from ..losses import Loss
from ..models import GVI
from ..regulariser.inducing_points import Select, greedy_variance
from . import outliers, refusals
from .around_network.learn_around import is_put_around, learn_around
from .around_network.network_data import in_memory
from .around_network.network_training import NetworkTraining, all_compiled
from .joint_outputs import learn_jointly, observed
from .learned import Learned
from .predictors import parse_predictor
from .procedure import Procedure, recorded
from .q_request import QRequest
from .q_training import BatchTraining
from .refusals import refuse
from .rows.parquet import ParquetRows
from .rows.split import Split, from_one_hot, is_of_one_column, of_labels, relative_weights
from .schedules import CosineAdam, EarlyStopping, Passes
from .settings import MAX_INDUCING, Effort, Noise, Settings, preset
from .variational import softmax_of


def learn(
    data: RegressionData | tf.data.Dataset | ParquetRows,
    *others: Any,
    kernel: Kernel | Sequence[Kernel] | None = None,
    predictor: Any = "auto",
    noise: Noise | None = None,
    outputs: Literal["independent", "correlated"] = "independent",
    missing: Literal["refuse", "ignore"] = "refuse",
    network: Any = None,
    train_network: bool | None = None,
    features: Any = None,
    output: str | int | None = None,
    classes: Sequence[Any] | None = None,
    likelihood: Likelihood | None = None,
    loss: str | Loss | None = None,
    mean: Any = None,
    covariance: Any = None,
    regulariser: Literal["posterior", "prior"] | None = None,
    model: type[GVI] | None = None,
    divergence: str | Divergence | None = None,
    divergence_weight: float | Literal["1/N"] | None = None,
    num_inducing: int | None = None,
    select: Select = greedy_variance,
    sample_weight: Any = None,
    validation_data: RegressionData | None = None,
    validation_fraction: float | None = Settings.validation_fraction,
    calibration_fraction: float = Settings.calibration_fraction,
    standardise: bool = Settings.standardise,
    epochs: int | None = None,
    callbacks: Sequence[Any] | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    effort: Effort = "default",
    n_jobs: int | None = None,
    seed: int = Settings.seed,
    verbose: int = 0,
) -> Learned:
    """Learn a Gaussian process from data, end to end.

    The candidates for the regulariser P are sparse posteriors with hyper-parameters of the greatest
    evidence: of a constant, a linear function and the recipe's kernels; around predictions of trees
    or a linear function that have not seen the row; and with noise that varies. Each is fitted once
    more without each fold of the rows, and these predictions decide: they give each candidate its
    tempering factor and tails, and its weight in a mixture, or say that one is best alone. Q is P,
    the optimum of its bound. Rows with equal X are left out together; copies count once, and a
    value of Y that is far from all others not at all, with a warning.

    If any of `mean`, `covariance`, `regulariser`, `network`, `model`, a loss, `divergence`,
    `divergence_weight` and `epochs` is given, Q is trained, for as long as held-out data gain by
    it, and tempered with them; by default a network that starts at zero is added to its mean. Rows
    that this function held out, and not the caller, then join the others: P is conditioned on all
    rows, Q is trained on them for as long as was best, and tempered by the factor that was best.

    Data may be larger than memory: a Dataset of rows or batches, arrays of which X is memory-mapped
    (`numpy.load(file, mmap_mode="r")`), or `ParquetRows`. They are read in blocks, several times.
    Beyond 50,000 rows a uniform sample of that size, whatever their order, takes the place of the
    data: kernels, predictors, noise, inducing points, tempering and held-out rows are chosen
    from it. Standard units are those of all rows, and under Gaussian noise P is conditioned on all
    rows that are not held out; under another likelihood, on the sample. An epoch of training Q, if
    any, has as many steps as for the sample, with rows drawn anew from all of them. Held-out rows
    do not join the others in the end.

    :param data: (X, Y), [N, D] and [N, J] or [N], in any units; or data in blocks. Y may be labels:
        strings, booleans and categories are, numbers are with a likelihood of classes.
    :param kernel: k of the regulariser, with the hyper-parameters to start from; of several the one
        that predicts best is taken. By default `recipe.kernels`. Around a network, a kernel of its
        features that stays as it is; by default `feature_kernel`.
    :param predictor: what P's mean is made of: an estimator of scikit-learn, or with its `fit` and
        `predict`, or a list of such. K clones of it are fitted, each without one fold of the rows;
        m_P is the average of their predictions, and at a row of the data that of the clone which
        has not seen the row, times a weight that is fitted with the hyper-parameters; the only
        predictor has the weight one if a kernel is given or effort is "fast". Or a function of
        arrays that has seen none of the data. Or an estimator that is fitted already: P is then
        learned from `validation_data` alone, rows that the estimator has not been fitted to;
        whether that is so cannot be found out here. "auto" is `recipe.predictors` if neither a
        kernel nor anything of Q is chosen, where they predict better; None is none. Around a
        network of classes, None keeps its class in every row, and "auto" may correct it by
        regressions on its features.
    :param noise: "constant", "varying" (its variance depends on x), or "auto", which takes what
        predicts best, and gives predictions the tails of Student's t that errors of rows left out
        have (`likelihoods.HeavyTailed`). By default it is "auto" if neither a kernel nor anything
        of Q is chosen, else "constant"; if effort is "fast", it is constant, and there are tails.
    :param outputs: "correlated" learns the columns of Y together (`joint_outputs`), so that each
        says something of the others; by default each is a function of its own with one kernel for
        all. Both are for real-valued Y and constant noise, which each column has its own of.
    :param missing: "ignore" leaves out the values of Y that are NaN, None or masked, and keeps what
        else is in their rows; columns are then learned as "correlated" ones are.
    :param network: for rows of numbers: what is added to the mean of Q, a function from [N, D] to
        [N, J] that should be zero at its start; by default, where Q is trained, `recipe.network`.
        For images [N, H, W, C] and other inputs that are no such rows, also several of them in a
        dictionary or a list: a model of Keras that is the mean of Q. It is trained first, as it is
        compiled or by Adam and cross entropy or squared errors in standard units, until held-out
        rows are predicted no better. The covariance of Q is then learned on its features
        (`around_network`). Or a list of such models, an ensemble: the mean of Q is that of their
        probabilities or numbers, on the features of the first.
    :param train_network: False to leave the network as it is, which by default is trained: it then
        is the mean of Q for rows of numbers, too, in original units, and `validation_data` should
        be rows unseen by it.
    :param features: what the kernel is on, around a network: "penultimate", what its last layer
        receives; "layers", the default, this and what is in front of it, averaged over pixels or
        steps of a sequence; the name of a layer; "inputs"; another model; or a list of such.
    :param output: which output of a network with several is learned: its name, key or place.
    :param classes: the class of each column of a network, if they are not in sorted order. Without
        it a network that is not trained here, whose columns fit another order far better, is
        refused.
    :param likelihood: the noise to start from; a `MultiClass`, `Softmax` or `Bernoulli`, which says
        that Y are labels, and is the default of names (`Bernoulli` of two classes, else `Softmax`);
        or any other of GPflow's likelihoods, for counts, amounts,
        fractions, levels, or noise of heavy tails. Parameters of noise are in standard units. Y
        that have no unit, as counts, are not standardised.
    :param loss: "robust" finds rows of real-valued Y that say nothing of the function (`outliers`
        of the result) by a likelihood that allows for them, and learns from the others. Or the loss
        that Q is trained with, such as `losses.GammaLoss()`, or its name, "gamma_loss".
    :param mean: m_Q: "recipe", the default, that of the sparse posterior with a network added;
        "inducing", without it; "regulariser", that of P; or a model of Keras, which alone is m_Q
        and is fitted to the mean of the sparse posterior first. One of several columns, where Y has
        one, is for labels. For images it is a network of images, and `kernel` has to be given.
    :param covariance: r: "cholesky", the default, "diagonal", "kernelised", "sparse_posterior",
        "fixed_sparse_posterior" or "regulariser", that of P; or a class of
        `gpflow_gvi.covariances`.
    :param regulariser: what Q is held to: "posterior", P given the rows, the default, or "prior".
    :param model: `PGVI`, `GWI` or `GVI`; by default `PGVI`.
    :param divergence: D, if it is not to be the model's own, or its name, "projected_kl"; a context
        of it is in the units that the model works in (`standardise`).
    :param divergence_weight: λ; by default 0.1. "1/N" is one divergence beside the sum of losses.
    :param num_inducing: M, the maximal number of inducing points of P and Q; by default 200, or of
        up to 100,000 rows as many as it takes to miss little of the function, not more than 1,000.
    :param select: how they are chosen.
    :param sample_weight: w of each row of real-valued Y, positive numbers [N], of which only the
        ratios count: the noise of a row has the variance σ²/w, σ² being that of a row of average
        weight. Noise is constant then; predictors take the weights if their `fit` does.
    :param validation_data: (X, Y) to stop and to temper with; by default a part of the data.
    :param validation_fraction: how large a part, without `validation_data`; by default a tenth
        where Q is trained, or none.
    :param calibration_fraction: the part to set aside for conformal intervals, if any; around a
        network that is not trained here, of `validation_data`, as it may have seen the data.
    :param standardise: whether to work in standard units, for which the defaults are made; all
        pixels of images have the same.
    :param epochs: the maximal number of epochs of training Q, each of 50 steps, or of two passes
        over the data if that is more; held-out data are evaluated after each. By default 20 where
        Q is trained.
    :param callbacks: those of Keras, for a network that is trained here.
    :param batch_size: rows of a batch; by default 200. It is for what is trained, Q or a network.
    :param learning_rate: Adam's at the start; it falls along a cosine. By default 0.003, and for
        what is trained, too, but a compiled network.
    :param effort: "fast" fits one squared exponential, without trees or noise that varies;
        "default" is described above; "best" fits hyper-parameters to more rows and for longer, and
        takes more folds.
    :param n_jobs: how many predictors are fitted at once, as joblib has it.
    :param seed: the seed of the split, selection, folds, network and order of batches.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing. `summary()` of
        the result tells it afterwards.
    """
    if others:
        raise TypeError("learn takes X and Y as a pair, learn((X, Y)), and the rest by name.")
    if isinstance(data, tuple | list):
        row_numbers.warn(data[0] if data else None)
    for name, count in (("batch_size", batch_size), ("num_inducing", num_inducing)):
        if count is not None:
            checks.count(name, count)
    checks.one_of("noise", noise, (None, *get_args(Noise)))
    checks.one_of("effort", effort, get_args(Effort))
    checks.one_of("outputs", outputs, ("independent", "correlated"))
    checks.one_of("missing", missing, ("refuse", "ignore"))
    asked = QRequest.of(
        network=network,
        mean=mean,
        covariance=covariance,
        regulariser=regulariser,
        model=model,
        divergence=divergence,
        divergence_weight=divergence_weight,
        loss=loss,
        epochs=epochs,
    )
    if not asked.is_given:
        refuse(refusals.NOT_TRAINED, batch_size=batch_size, learning_rate=learning_rate)
    data, jointly = _observed(data, outputs, missing)
    of_recipe = kernel is None and not asked.is_given
    by_recipe = of_recipe and effort != "fast"
    if sample_weight is not None:
        refuse(refusals.NOT_WEIGHTED, validation_data=validation_data)
    predictors, rows, validation_data = parse_predictor(predictor, by_recipe, data, validation_data)
    if validation_data is not None:
        refuse(refusals.NOTHING_HELD_OUT, validation_fraction=validation_fraction or None)
    of_network = {"features": features, "train_network": train_network}
    of_columns = {"classes": classes, "output": output}
    if network is None:
        refuse(refusals.NO_NETWORK, **of_network, **of_columns)
    is_around = is_put_around(network, features, train_network, data)
    if not is_around:
        refuse(refusals.NO_COLUMNS, **of_columns)
        refuse(refusals.OF_KERAS, callbacks=callbacks)
    rows, validation_data, likelihood, names = _labelled(
        rows, validation_data, likelihood, network if is_around else None, mean
    )
    robust = loss if loss == "robust" else None
    of_noise = {
        "noise": None if noise == "constant" else noise,
        "likelihood": None if refusals.is_constant_noise(likelihood) else likelihood,
        "loss": robust,
    }
    of_training: dict[str, Any] = {
        "epochs": epochs,
        "callbacks": callbacks,
        "batch_size": batch_size,
    }
    if sample_weight is not None:
        sample_weight = relative_weights(sample_weight, data)
        asked.refuse(refusals.NOT_WEIGHTED, network=network, epochs=epochs)
        refuse(refusals.NOT_WEIGHTED, **of_noise, outputs=jointly or None)
    kernels = [kernel] if isinstance(kernel, Kernel) else kernel
    start = preset(effort)
    is_fixed = num_inducing is not None or asked.is_given or effort == "fast"
    schedule = Passes(_given(epochs, Passes.epochs), _given(batch_size, Passes.batch_size))
    rate = _given(learning_rate, CosineAdam.learning_rate)
    settings = Settings(
        regulariser=dataclasses.replace(
            start,
            kernels=None if kernels is None else lambda _: kernels,
            num_inducing=start.num_inducing if num_inducing is None else num_inducing,
            max_inducing=None if is_fixed else MAX_INDUCING,
            predictors=predictors,
            noise=noise or (start.noise if of_recipe and sample_weight is None else "constant"),
            heavy_tails=start.heavy_tails if of_recipe and noise is None else None,
            select=select,
            process=asked.process,
            n_jobs=n_jobs,
        ),
        variational=asked.variational,
        model=asked.objective,
        training=BatchTraining(schedule, CosineAdam(rate), EarlyStopping()),
        validation_fraction=validation_fraction,
        calibration_fraction=calibration_fraction,
        likelihood=likelihood,
        classes=names,
        standardise=standardise,
        sample_weight=sample_weight,
        seed=seed,
        pool=of_recipe and noise is None and isinstance(predictor, str | None),
    )
    own = {"predictor": None if isinstance(predictor, str) else predictor, "n_jobs": n_jobs}
    with progress.spoken(verbose):
        if jointly:
            asked.refuse(refusals.NOT_JOINT, network=network, epochs=epochs, **own)
            refuse(refusals.NOT_JOINT, **of_noise)
            return learn_jointly(rows, kernels, settings, validation_data)
        if is_around:
            has_points = effort == "best" and num_inducing is None  # twice as many
            of_effort = None if effort == "default" or has_points else effort
            asked.refuse(refusals.NOT_AROUND, noise=noise, effort=of_effort, **own)
            refuse(refusals.NOT_AROUND, loss=robust)
            training = None
            if _given(train_network, True):
                if all_compiled(network):
                    refuse(refusals.COMPILED, learning_rate=learning_rate)
                training = NetworkTraining(schedule, rate, EarlyStopping(), seed, callbacks or ())
            else:
                of_training["learning_rate"] = learning_rate
                refuse(refusals.NETWORK_NOT_TRAINED, **of_training)
            return recorded(
                lambda: learn_around(
                    rows,
                    network,
                    settings,
                    features=features,
                    kernel=kernel,
                    training=training,
                    validation_data=validation_data,
                    columns=classes,
                    output=output,
                    corrects=predictor is not None,
                )
            )
        if not refusals.is_constant_noise(likelihood):
            refuse(refusals.NO_NOISE.format(type(likelihood).__name__), noise=noise)
        if not refusals.cross_fits(settings):
            refuse(refusals.NO_CROSS_FITS, n_jobs=n_jobs)
        left_out = None if robust is None else _outliers(rows, settings)
        if left_out is not None:
            rows = tuple(np.delete(np.asarray(part), left_out.rows, axis=0) for part in rows)
        learned = Procedure(Split.of(rows, settings, validation_data), settings).run()
        return dataclasses.replace(learned, outliers=left_out)


def _observed(data: Any, outputs: str, missing: str) -> tuple[Any, bool]:
    """Return the data, and whether outputs are learned together."""
    if missing == "ignore":
        pair = observed(data)
        return pair, outputs == "correlated" or bool(np.isnan(pair[1]).any())
    if outputs != "correlated":
        return data, False
    X, Y = Data.of(data)  # nothing may be missing
    return (np.asarray(X), np.asarray(Y)), True


def _labelled(
    rows: Any, validation_data: Any, likelihood: Likelihood | None, network: Any, mean: Any
) -> tuple[Any, Any, Likelihood | None, Any]:
    """Return data with labels as class indices, their likelihood, and the classes.

    :param network: the network that the process is around, if it is around one.
    :param mean: the argument of `learn`; a network of several columns is for labels.
    """
    of_columns = softmax_of(mean)
    if network is not None:
        rows = in_memory("data", rows, network)
        validation_data = in_memory("validation_data", validation_data, network)
    given = likelihood
    if likelihood is None and (network is not None or of_columns is not None):
        rows, validation_data = from_one_hot(rows), from_one_hot(validation_data)
        if network is None and is_of_one_column(rows):
            likelihood = of_columns
    rows, validation_data, likelihood, names = of_labels(rows, validation_data, likelihood)
    # A network says by itself what it is for.
    return rows, validation_data, likelihood if network is None else given, names


def _given(value: Any, default: Any) -> Any:
    """Return the default of an argument that was not given."""
    return default if value is None else value


def _outliers(rows: RegressionData, settings: Settings) -> outliers.Outliers:
    if not is_gaussian(settings.likelihood):
        raise TypeError(
            f"loss='robust' is for real-valued Y under Gaussian noise, but likelihood is "
            f"{type(settings.likelihood).__name__}. Leave out one of them; StudentT() is a "
            "likelihood of heavy tails."
        )
    return outliers.find(rows, settings.regulariser, settings.seed)

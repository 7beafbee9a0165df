"""The whole procedure in one call."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood

from .._core import checks, progress, row_numbers
from .._core.data import Data
from .._core.graphs import deepcopy
from ..divergences import Divergence, InducingKL
from ..losses import Loss
from ..models import GVI, PGVI
from ..regulariser.inducing_points import Select, greedy_variance
from . import outliers, refusals
from .around_network.learn_around import is_meant, learn_around
from .around_network.network_data import in_memory
from .around_network.network_training import NetworkTraining, all_compiled
from .joint_outputs import learn_jointly, observed
from .learned import Learned
from .predictors import parse_predictor
from .procedure import Procedure, recorded
from .q_training import BatchTraining
from .refusals import refuse
from .rows.split import Split, from_one_hot, is_of_one_column, of_labels
from .schedules import CosineAdam, EarlyStopping, Passes
from .settings import (
    MAX_INDUCING,
    Effort,
    ModelSettings,
    Noise,
    Settings,
    VariationalSettings,
    preset,
)
from .start import InducingPlusNetwork, Start, inducing_covariance, inducing_mean
from .variational import (
    DIVERGENCES,
    LOSSES,
    named,
    parse_covariance,
    parse_mean,
    softmax_of,
)


def learn(
    data: RegressionData | tf.data.Dataset,
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
    validation_data: RegressionData | None = None,
    validation_fraction: float | None = Settings.validation_fraction,
    calibration_fraction: float = Settings.calibration_fraction,
    standardise: bool = Settings.standardise,
    epochs: int | None = None,
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

    Data may be larger than memory: a Dataset of rows or batches, or arrays of which X is
    memory-mapped (`numpy.load(file, mmap_mode="r")`). They are read in blocks, several times.
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
        kernel nor anything of Q is chosen, where they predict better; None is none.
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
    if epochs is not None:
        checks.count("epochs", epochs, least=0)
    if batch_size is not None:
        checks.count("batch_size", batch_size)
    if num_inducing is not None:
        checks.count("num_inducing", num_inducing)
    checks.one_of("noise", noise, (None, *get_args(Noise)))
    checks.one_of("effort", effort, get_args(Effort))
    checks.one_of("outputs", outputs, ("independent", "correlated"))
    checks.one_of("missing", missing, ("refuse", "ignore"))
    if isinstance(loss, str):
        checks.one_of("loss", loss, ("robust", *LOSSES))
        loss = loss if loss == "robust" else named("loss", loss, LOSSES)
    own_divergence: Divergence | None = named("divergence", divergence, DIVERGENCES)
    jointly = outputs == "correlated"
    if missing == "ignore":
        data = pair = observed(data)
        jointly = jointly or bool(np.isnan(pair[1]).any())
    elif jointly:  # nothing may be missing
        X, Y = Data.of(data)
        data = np.asarray(X), np.asarray(Y)
    if model is GVI and divergence is None:
        raise TypeError("model is GVI, which has no divergence of its own: pass divergence=....")
    is_svgp = isinstance(
        own_divergence, InducingKL
    )  # finite for a prior P, and no network beside u
    checks.one_of("regulariser", regulariser, (None, "posterior", "prior"))
    if mean is not None:
        refuse(refusals.HAS_MEAN, network=network)
    if is_svgp:
        refuse(refusals.OF_INDUCING, mean=mean, covariance=covariance, regulariser=regulariser)
    if is_svgp and network is not None:
        raise TypeError(
            "divergence is InducingKL(), which is infinite where a network is added to the mean of "
            "Q. Leave out the network, or take a projected divergence or GaussianWasserstein()."
        )
    parts_of_q = {"mean": mean, "covariance": covariance, "regulariser": regulariser}
    of_q = (network, model, divergence, divergence_weight, epochs, *parts_of_q.values())
    chosen = any(each is not None for each in of_q) or isinstance(loss, Loss)
    if not chosen:
        refuse(refusals.NOT_TRAINED, batch_size=batch_size, learning_rate=learning_rate)
    of_recipe = kernel is None and not chosen
    by_recipe = of_recipe and effort != "fast"
    predictors, rows, validation_data = parse_predictor(predictor, by_recipe, data, validation_data)
    if validation_data is not None:
        refuse(refusals.NOTHING_HELD_OUT, validation_fraction=validation_fraction or None)
    if network is None:
        asked = {"features": features, "train_network": train_network, "classes": classes}
        refuse(refusals.NO_NETWORK, **asked, output=output)
    is_around = is_meant(network, features, train_network, data)
    if is_around:
        rows = in_memory("data", rows, network)
        validation_data = in_memory("validation_data", validation_data, network)
    else:
        refuse(refusals.NO_COLUMNS, classes=classes, output=output)
    of_columns = softmax_of(mean)
    if likelihood is None and (is_around or of_columns is not None):
        rows, validation_data = from_one_hot(rows), from_one_hot(validation_data)
        likelihood = None if is_around or not is_of_one_column(rows) else of_columns
    rows, validation_data, of_names, found = of_labels(rows, validation_data, likelihood)
    likelihood = likelihood if is_around else of_names  # a network says by itself what it is for
    kernels = [kernel] if isinstance(kernel, Kernel) else kernel
    start = preset(effort)
    schedule = Passes(_given(epochs, Passes.epochs), _given(batch_size, Passes.batch_size))
    rate = _given(learning_rate, CosineAdam.learning_rate)
    settings = Settings(
        regulariser=dataclasses.replace(
            start,
            kernels=None if kernels is None else lambda _: kernels,
            num_inducing=start.num_inducing if num_inducing is None else num_inducing,
            max_inducing=None if num_inducing or chosen or effort == "fast" else MAX_INDUCING,
            predictors=predictors,
            noise=noise or (start.noise if of_recipe else "constant"),
            heavy_tails=start.heavy_tails if of_recipe and noise is None else None,
            select=select,
            process=operator.attrgetter("prior" if is_svgp else regulariser or "posterior"),
            n_jobs=n_jobs,
        ),
        variational=VariationalSettings(
            _mean(mean, network) if chosen and not is_svgp else inducing_mean,
            inducing_covariance if covariance is None else parse_covariance(covariance),
        ),
        model=ModelSettings(
            kind=_given(model, PGVI),
            # Each training starts from the same state of its context.
            divergence=None if own_divergence is None else lambda _: deepcopy(own_divergence),
            loss=(lambda: loss) if isinstance(loss, Loss) else None,
            divergence_weight=_given(divergence_weight, ModelSettings.divergence_weight),
        ),
        training=BatchTraining(schedule, CosineAdam(rate), EarlyStopping()),
        validation_fraction=validation_fraction,
        calibration_fraction=calibration_fraction,
        likelihood=likelihood,
        classes=found,
        standardise=standardise,
        seed=seed,
        pool=of_recipe and noise is None and isinstance(predictor, str | None),
    )
    with progress.spoken(verbose):
        if jointly:
            refuse(
                refusals.NOT_JOINT,
                **parts_of_q,
                loss=loss,
                noise=None if noise == "constant" else noise,
                predictor=None if isinstance(predictor, str) else predictor,
                network=network,
                model=model,
                divergence=divergence,
                divergence_weight=divergence_weight,
                epochs=epochs,
                n_jobs=n_jobs,
                likelihood=None if refusals.is_constant_noise(likelihood) else likelihood,
            )
            return learn_jointly(rows, kernels, settings, validation_data)
        if is_around:
            has_points = effort == "best" and num_inducing is None  # twice as many
            refuse(
                refusals.NOT_AROUND,
                **parts_of_q,
                model=model,
                divergence=divergence,
                divergence_weight=divergence_weight,
                predictor=None if isinstance(predictor, str) else predictor,
                loss=loss,
                noise=noise,
                n_jobs=n_jobs,
                effort=None if effort == "default" or has_points else effort,
            )
            trains = _given(train_network, True)
            if not trains:
                refuse(
                    refusals.NETWORK_NOT_TRAINED,
                    epochs=epochs,
                    batch_size=batch_size,
                    learning_rate=learning_rate,
                )
            elif all_compiled(network):
                refuse(refusals.COMPILED, learning_rate=learning_rate)
            training = NetworkTraining(schedule, rate, EarlyStopping(), seed)
            of_network = functools.partial(
                learn_around,
                rows,
                network,
                settings,
                features=features,
                kernel=kernel,
                training=training if trains else None,
                validation_data=validation_data,
                columns=classes,
                output=output,
            )
            return recorded(of_network)
        if not refusals.is_constant_noise(likelihood):
            refuse(refusals.NO_NOISE.format(type(likelihood).__name__), noise=noise)
        if not refusals.cross_fits(settings):
            refuse(refusals.NO_CROSS_FITS, n_jobs=n_jobs)
        left_out = None
        if not (loss is None or isinstance(loss, Loss)):
            left_out = _outliers(rows, settings)
            rows = tuple(np.delete(np.asarray(part), left_out.rows, axis=0) for part in rows)
        learned = Procedure(Split.of(rows, settings, validation_data), settings).run()
        return dataclasses.replace(learned, outliers=left_out)


def _mean(mean: Any, network: Any) -> Callable[[Start], MeanFunction]:
    """Return the constructor of Q's initial mean."""
    return InducingPlusNetwork(network) if mean is None else parse_mean(mean)


def _given(value: Any, default: Any) -> Any:
    """Return the default of an argument that was not given."""
    return default if value is None else value


def _outliers(rows: RegressionData, settings: Settings) -> outliers.Outliers:
    if not (settings.likelihood is None or isinstance(settings.likelihood, Gaussian)):
        raise TypeError(
            f"loss='robust' is for real-valued Y under Gaussian noise, but likelihood is "
            f"{type(settings.likelihood).__name__}. Leave out one of them; StudentT() is a "
            "likelihood of heavy tails."
        )
    return outliers.find(rows, settings.regulariser, settings.seed)

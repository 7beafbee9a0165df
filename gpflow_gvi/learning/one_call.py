"""The whole procedure in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core import feature_names, progress
from ..divergences import Divergence
from ..likelihoods import has_constant_noise, is_gaussian
from ..losses import Loss
from ..models import GVI
from ..regulariser.inducing_points import Select, greedy_variance
from . import outliers, refusals
from .arguments import Arguments, labelled, observations
from .around_network.learn_around import learn_around
from .around_network.network_data import inputs_of
from .joint_outputs import learn_jointly
from .learned import Learned
from .pooled import Pooled
from .predictors import parse_predictor
from .procedure import Procedure, recorded
from .refusals import refuse
from .rows.scaling import Scaling
from .rows.split import Split
from .rows.streams import ParquetRows
from .settings import Effort, Noise, Settings


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
    the optimum of its bound. Rows with equal X are left out together, unless new rows
    have known inputs; copies count once, and a value of Y that is far from all others not at all,
    with a warning.

    If any of `mean`, `covariance`, `regulariser`, `network`, `model`, a loss, `divergence`,
    `divergence_weight` and `epochs` is given, Q is trained, for as long as held-out data gain by
    it, or not at all if that may be chance, and tempered with them; by default a network that
    starts at zero is added to its mean. Rows that this function held out, and not the caller, then
    join the others: P is conditioned on all rows, Q is trained on them for as long as was best, a
    network in its mean from where it was best and for a tenth as long, and tempered by the factor
    that was best.

    Data may be larger than memory: a Dataset of rows or batches, arrays of which X is memory-mapped
    (`numpy.load(file, mmap_mode="r")`), or `ParquetRows`. They are read in blocks, several times.
    Beyond 50,000 rows a uniform sample of that size, whatever their order, takes the place of the
    data where something is chosen or held out; under Gaussian noise P is conditioned on all others.

    :param data: (X, Y), [N, D] and [N, J] or [N], in any units; or data in blocks. Y may be labels:
        booleans are, in arrays strings and categories, too; numbers are with a likelihood of
        classes. If X is a table with names, new tables must have these columns, in this order.
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
        have (`likelihoods.HeavyTailed`). By default it is "auto" if no kernel is chosen, no network
        alone is m_Q and the loss is not robust, else "constant"; if effort is "fast" or a network
        is m_Q, it is constant, and there are tails, unless a kernel is given.
    :param outputs: "correlated" learns the columns of Y together (`joint_outputs`), so that each
        says something of the others; by default each is a function of its own with one kernel for
        all. Both are for real-valued Y and constant noise, which each column has its own of.
    :param missing: "ignore" leaves out the values of Y that are NaN, None or masked, and keeps what
        else is in their rows; columns are then learned as "correlated" ones are. Rows without a
        label are left out.
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
    :param classes: the class of each column of a network, if they are not in sorted order, or if
        there are no examples of some. Without it a network that is not trained here, whose columns
        fit another order far better, is refused.
    :param likelihood: the noise to start from; a `MultiClass`, `Softmax` or `Bernoulli`, which says
        that Y are labels, and is the default of names (`Bernoulli` of two classes, else `Softmax`);
        or any other of GPflow's likelihoods, for counts, amounts,
        fractions, levels, or noise of heavy tails. Parameters of noise, and X where a likelihood
        reads it, are in standard units. Y that have no unit, as counts, are not standardised.
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
        up to 100,000 rows as many as it takes to miss little of the function, not more than 1,000
        (around a network 1,000), unless a network alone is m_Q or the loss is robust.
    :param select: how they are chosen.
    :param sample_weight: w of each row of real-valued Y that is given, numbers [N], of which only
        the ratios count: the noise of a row has the variance σ²/w, σ² being that of a row of
        average weight; rows of weight zero are left out. Noise is constant then; predictors take
        the weights if their `fit` does.
    :param validation_data: (X, Y) to stop and to temper with; by default a part of the data.
    :param validation_fraction: how large a part, without `validation_data`; by default a tenth
        where Q is trained, or none.
    :param calibration_fraction: the part to set aside for conformal intervals, if any; around a
        network that is not trained here, of `validation_data`, as it may have seen the data.
    :param standardise: whether to work in standard units, for which the defaults are made; all
        pixels of images have the same.
    :param epochs: the maximal number of epochs of training Q, each of 50 steps, or of two passes
        over the data if that is more; held-out data are evaluated after each. By default 20 where
        Q is trained, and for at least 5,000 steps where a network alone is its mean.
    :param callbacks: those of Keras, for a network that is trained here.
    :param batch_size: rows of a batch; by default 200. It is for what is trained, Q or a network.
    :param learning_rate: Adam's at the start; it falls along a cosine. By default 0.003, and for
        what is trained, too, but a compiled network.
    :param effort: "fast" fits one squared exponential and a linear function, without trees or noise
        that varies; "default" is described above; "best" fits hyper-parameters to more rows and for
        longer, and takes more folds.
    :param n_jobs: how many predictors are fitted at once, as joblib has it.
    :param seed: the seed of the split, selection, folds, network and order of batches.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing. `summary()` of
        the result tells it afterwards.
    """
    given = Arguments(**locals()).checked()
    asked = given.of_q()
    data, jointly, numbers, weights = observations(given)
    by_recipe = kernel is None and not asked.is_given and effort != "fast"
    predictors, rows, held = parse_predictor(predictor, by_recipe, data, validation_data)
    if held is not None:
        refuse(refusals.NOTHING_HELD_OUT, validation_fraction=validation_fraction or None)
    given.sample_weight, given.row_numbers = weights, numbers if rows is data else None
    around = given.network_around(data)
    rows, held, given.likelihood, names = labelled(given, rows, held, around)
    if sample_weight is not None:
        asked.refuse(refusals.NOT_WEIGHTED, **given.beyond_plain(jointly))
    settings = given.settings(asked, predictors, names)
    with progress.spoken(verbose):
        if jointly:
            asked.refuse(refusals.NOT_JOINT, predictor=given.own_predictor, **given.beyond_plain())
            learned = learn_jointly(rows, given.kernels, settings, held)
        elif around is not None:
            asked.refuse(refusals.NOT_AROUND, **given.beyond_network)
            learned = recorded(lambda: learn_around(rows, held, settings, given))
        else:
            learned = _by_procedure(given, rows, held, settings)
    return with_names(learned, feature_names.of(inputs_of(given.data)))


def _by_procedure(given: Arguments, rows: Any, held: Any, settings: Settings) -> Learned:
    """Learn by the procedure, from all rows but the outliers where these are asked for."""
    if not has_constant_noise(given.likelihood):
        name = type(given.likelihood).__name__
        refuse(refusals.NO_NOISE.format(name), noise=given.noise)
    left_out = None
    if given.robust is not None:
        if not is_gaussian(settings.likelihood):
            raise TypeError(
                f"loss='robust' is for real-valued Y under Gaussian noise, but likelihood is "
                f"{type(settings.likelihood).__name__}. Leave out one of them; StudentT() is a "
                "likelihood of heavy tails."
            )
        found = outliers.find(rows, settings.regulariser, settings.seed)
        numbers = settings.numbers_of(rows[0])
        left_out = found._replace(rows=numbers[found.rows])
        rows = tuple(np.delete(np.asarray(part), found.rows, axis=0) for part in rows)
        settings = dataclasses.replace(settings, row_numbers=np.delete(numbers, found.rows))
    learned = Procedure(Split.of(rows, settings, held), settings).run()
    return dataclasses.replace(learned, outliers=left_out)


def with_names(learned: Learned, names: tuple[str, ...] | None) -> Learned:
    """Return the same model, which takes no table whose columns have other names."""
    inputs = learned.inputs
    if isinstance(inputs, Scaling):
        inputs = inputs._replace(names=names)
    else:
        inputs = dataclasses.replace(inputs, inputs=inputs.inputs._replace(names=names))
    if isinstance(learned, Pooled):
        parts = tuple(with_names(part, names) for part in learned.parts)
        return dataclasses.replace(learned, inputs=inputs, parts=parts)
    return dataclasses.replace(learned, inputs=inputs)

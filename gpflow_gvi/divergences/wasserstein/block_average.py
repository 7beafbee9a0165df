"""The distance between two covariances, block of the batch by block."""

from __future__ import annotations

import itertools

import tensorflow as tf

from ..._core import checks
from ...gaussian_process import GaussianVector
from .base import CovarianceDistance
from .exact import Exact


class Blocks(CovarianceDistance):
    """The sum of another estimate over blocks of the batch: O(B³ / G²) for G exact ones.

    Each block is a batch of its own, so this averages several minibatches in one graph. What blocks
    leave out is the covariance between them. As leaving it out does not lower a fidelity (Nielsen
    and Chuang 2010, section 9.2.2), G `Exact` blocks give a lower bound of `Exact`; with one row in
    each it is the distance between the marginals.

    :param num_blocks: G; each block has B / G successive rows, up to one. In a batch with fewer
        rows each is a block of its own.
    :param estimator: what each block is estimated by.
    """

    name = "blocks"

    def __init__(self, num_blocks: int = 10, estimator: CovarianceDistance | None = None) -> None:
        checks.count("num_blocks", num_blocks)
        self.num_blocks = num_blocks
        self.estimator = Exact() if estimator is None else estimator

    def __call__(self, q: GaussianVector, p: GaussianVector) -> tf.Tensor:
        """Return tr K + tr R - 2 F: [J]."""
        B = tf.shape(q.X)[0]
        ends = [B * i // self.num_blocks for i in range(self.num_blocks + 1)]
        blocks = [q.X[a:b] for a, b in itertools.pairwise(ends)]
        return tf.add_n([self.estimator(q.process.at(X), p.process.at(X)) for X in blocks])

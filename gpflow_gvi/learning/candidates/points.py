"""How many inducing points the fits under Gaussian noise have, and which."""

from __future__ import annotations

from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..._core import outputs
from ...regulariser.evidence import evidence_missed
from ...regulariser.fit import Regulariser
from ..settings import MAX_INDUCING, RegulariserSettings
from ..start import TrainingData
from .candidate import MAX_ROWS_OF_STARTS

MIN_FEATURES_OF_EXACT = 20
"""With as many features few rows have a point each: with fewer points than rows, which are all far
from each other then, most of a function would be taken for noise."""

MAX_MISSED = 0.01
"""As many inducing points as there may be are taken if a fit misses more nats for each row."""

MAX_ROWS_OF_ALL = 2000
"""Up to this number of rows all distinct ones may be inducing points."""

MIN_ROWS_OF_FEW_POINTS = 3000
"""Of as many rows further candidates have more points only where these are needed: to predict all
rows takes longer than a fit then."""


class Points:
    """The number of inducing points of the next fits: few of them, or as many as there may be.

    What few points miss of a function that varies fast is taken for noise.
    """

    def __init__(self, settings: RegulariserSettings, data: TrainingData) -> None:
        self._settings, self._data = settings, data
        self.few = settings.count(len(data.X))
        self.most = min(settings.most_inducing(data.num_rows), len(data.X))
        self.count = self.few

    @property
    def may_be_exact(self) -> bool:
        """Whether there may be a point for each row that hyper-parameters are fitted to."""
        N = self._data.num_rows
        return self._settings.most_inducing(N) >= min(N, self._settings.max_rows or N)

    def of_fit(self, first: TrainingData) -> int:
        """Return M of a fit to these rows."""
        N = len(first.X)
        # A start has the evidence if the fit from it may have it, too, as it takes less time.
        is_start = len(self._data.X) > N and self.may_be_exact
        if N <= MAX_ROWS_OF_STARTS and (is_start or first.D >= MIN_FEATURES_OF_EXACT):
            return max(self.count, min(N, self._settings.most_inducing(N)))
        return self.count

    def chosen(
        self, kernel: Kernel, M: int, data: TrainingData
    ) -> tuple[AnyNDArray, AnyNDArray | None]:
        """Return not more than M points for this kernel, and which rows they are."""
        return self._settings.select(data.X, M, kernel=kernel, seed=data.seed)

    def miss_little(self, P: Regulariser, M: int) -> bool:
        """Return whether the bound of M points is hardly below the evidence."""
        data, kernel = self._data.first(self._settings.max_rows), P.prior.kernel
        noise = outputs.noise_variance_at(P.likelihood, data.X, data.J)
        Z, _ = self.chosen(kernel, M, data)
        return evidence_missed(kernel, noise, Z, data.X) < MAX_MISSED

    def take_more(self, P: Regulariser) -> bool:
        """Take as many as there may be if P misses much; return whether it does."""
        if self.count >= self.most or self.miss_little(P, self.count):
            return False
        self.count = self.most
        return True

    def of_all(self, num_rows: int, num_points: int | None) -> int:
        """Return M to condition on so many rows: all of them where they are not too many.

        What fewer points miss of a function counts for nothing in a posterior, and is known only
        where P has noise to spare. So where the fit had the exact evidence so has its posterior.

        :param num_points: M of the fit; None if it had the exact evidence.
        """
        if num_points is not None:
            return num_points
        most = self._settings.most_inducing(self._data.num_rows)
        return num_rows if num_rows <= MAX_ROWS_OF_ALL and most >= MAX_INDUCING else most

    @property
    def may_be_few_again(self) -> bool:
        """Whether there are more than few, of rows that take long to predict."""
        return self.count != self.few and len(self._data.X) >= MIN_ROWS_OF_FEW_POINTS

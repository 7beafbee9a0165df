"""The classes of which a model of a table is made, for `save` and `load`."""

from __future__ import annotations

from .columns import Columns
from .dates import Dates
from .model import TableModel
from .seen import Seen

SAVED: tuple[type, ...] = (Columns, Dates, Seen, TableModel)

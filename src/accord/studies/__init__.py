"""Studies: the papers' tables and figures, and our own, as files that a command can carry out."""

from accord.studies.study import Cell, Study, available, load

__all__ = ["Cell", "Study", "available", "load"]

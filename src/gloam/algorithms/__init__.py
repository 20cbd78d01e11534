"""Algorithms: which emitter, archive and discount meet."""

from gloam.algorithms.base import Algorithm as Algorithm
from gloam.algorithms.dms import DMS as DMS

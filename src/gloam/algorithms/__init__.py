"""Algorithms: combinations of an emitter, an archive and a discount."""

from gloam.algorithms.algorithm import Algorithm as Algorithm
from gloam.algorithms.baselines import CMAMAE as CMAMAE
from gloam.algorithms.baselines import MAPElites as MAPElites
from gloam.algorithms.baselines import MAPElitesLine as MAPElitesLine
from gloam.algorithms.dms import DMS as DMS

"""Algorithms: which emitter, archive and discount meet."""

from gloam.algorithms.algorithm import Algorithm as Algorithm
from gloam.algorithms.cma_mae import CMAMAE as CMAMAE
from gloam.algorithms.dds import DDS as DDS
from gloam.algorithms.dms import DMS as DMS
from gloam.algorithms.map_elites import MAPElites as MAPElites
from gloam.algorithms.map_elites import MAPElitesLine as MAPElitesLine

"""Speed, side by side: gloam and its peers on the same problems, in one process, taking turns.

`gloam bench` is the command. Peers are optional and imported only when they are asked for.
"""

from gloam.peers.compare import Comparison, measure
from gloam.peers.problem import ALGORITHMS, Problem

__all__ = ["ALGORITHMS", "Comparison", "Problem", "measure"]

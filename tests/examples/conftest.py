import sys
from pathlib import Path

# The examples are scripts of three folders; those of larger examples import one another by name.
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "faces"), str(EXAMPLES / "molecules")]

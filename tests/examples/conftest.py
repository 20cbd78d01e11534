import sys
from pathlib import Path

# The examples are scripts of two folders; those of `faces` import one another by name.
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "faces")]

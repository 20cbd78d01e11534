import sys
from pathlib import Path

# The examples are scripts of three folders; those of `airfoils` and `faces` import one another by
# name.
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / folder) for folder in (".", "airfoils", "faces")]

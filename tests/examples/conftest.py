import sys
from pathlib import Path

# The examples are scripts; those of larger examples have a folder and import one another by name.
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [
    str(EXAMPLES / folder) for folder in (".", "airfoils", "faces", "molecules", "programs")
]

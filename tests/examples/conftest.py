import sys
from pathlib import Path

# The example's files import one another by name, as scripts in one folder do.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "faces"))

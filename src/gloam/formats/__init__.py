"""Run folders and other files of gloam, which are validated on read."""

from gloam._tools.registry import register as register
from gloam.formats.run_folder import RunFolder as RunFolder

"""Run folders and other files of gloam, which are validated on read."""

from gloam.formats.run_folder import RunFolder as RunFolder

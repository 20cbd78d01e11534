"""Formats: what is written to files, by names that stay the same, with digests and locks."""

from gloam.formats.errors import DamagedFileError as DamagedFileError
from gloam.formats.errors import ForeignError as ForeignError
from gloam.formats.errors import LockedError as LockedError
from gloam.formats.errors import RunExistsError as RunExistsError
from gloam.formats.run_folder import RunFolder as RunFolder

"""Formats: what is written to files, by names that stay the same, with digests and locks."""

from gloam.formats.documents import DamagedFileError as DamagedFileError
from gloam.formats.documents import ForeignError as ForeignError
from gloam.formats.documents import LockedError as LockedError
from gloam.formats.documents import RunExistsError as RunExistsError
from gloam.formats.run_folder import RunFolder as RunFolder

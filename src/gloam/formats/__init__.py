"""Run folders and other files of gloam, which are validated on read."""

from gloam.formats.documents import DamagedFileError as DamagedFileError
from gloam.formats.documents import ForeignError as ForeignError
from gloam.formats.documents import LockedError as LockedError
from gloam.formats.documents import RunExistsError as RunExistsError
from gloam.formats.run_folder import RunFolder as RunFolder

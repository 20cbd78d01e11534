"""Drivers: the fused loop on the device, ask-tell around Python, and the folders they write."""

from gloam.drivers.ask_tell import Search as Search
from gloam.drivers.loop import Interrupted as Interrupted
from gloam.drivers.loop import Result as Result
from gloam.drivers.session import optimize as optimize
from gloam.drivers.session import resume as resume
from gloam.drivers.session import run as run

"""Drivers: the fused loop on the device, ask-tell around Python, and the folders they write."""

from gloam.drivers.async_search import AsyncSearch as AsyncSearch
from gloam.drivers.entry_points import optimize as optimize
from gloam.drivers.entry_points import resume as resume
from gloam.drivers.entry_points import run as run
from gloam.drivers.options import Asynchronous as Asynchronous
from gloam.drivers.result import Interrupted as Interrupted
from gloam.drivers.result import Result as Result
from gloam.drivers.search import Search as Search
from gloam.drivers.tickets import Ticket as Ticket

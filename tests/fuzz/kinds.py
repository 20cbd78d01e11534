"""All kinds of attacks by name, but for kills, which need processes of their own."""

from .calls import Calls
from .command_lines import CommandLines
from .configurations import Configurations
from .corruptions import Corruptions
from .pickles import Pickles
from .requests import Requests

KINDS = {
    "corruptions": Corruptions,
    "configurations": Configurations,
    "calls": Calls,
    "commands": CommandLines,
    "pickles": Pickles,
    "requests": Requests,
}
"""Classes by the name of the kind."""

"""Searches that you drive: ask for solutions, evaluate them, tell the results."""

from gloam.searches.async_search import AsyncSearch as AsyncSearch
from gloam.searches.parts import Ticket as Ticket
from gloam.searches.pool import Parent as Parent
from gloam.searches.pool import Pool as Pool
from gloam.searches.pool import Target as Target
from gloam.searches.search import Search as Search

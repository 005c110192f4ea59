"""What `twistd` finds: the command `llamaswap` and the reactor `lswap`.

Names modules and imports none of them, so that listing plugins stays cheap and a reactor can still be chosen.
There must be no `__init__.py` here or in the folder above: both belong to Twisted.
"""

from twisted.application.reactors import Reactor
from twisted.application.service import ServiceMaker

llamaswap = ServiceMaker(
    "lswap",
    "lswap.tap",
    "Runs more local AI models than fit into memory: starts, swaps and unloads model servers.",
    "llamaswap",
)
reactor = Reactor("lswap", "lswap.net.reactor", "The reactor that suits lswap's data path.")

"""What `twistd` finds: the commands `llamaswap` and `lswap-wol`, and the reactor `lswap`.

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
lswap_wol = ServiceMaker(
    "lswap-wol",
    "lswap.wol.tap",
    "A small proxy before a host that sleeps: wakes it up when somebody wants something of it.",
    "lswap-wol",
)
reactor = Reactor("lswap", "lswap.net.reactor", "The reactor that suits lswap's data path.")

"""English words that say nothing of what a question is about."""

from __future__ import annotations

# "may" is missing on purpose: it is a month, and a name. What an apostrophe leaves behind ("t", "ll") is here.
_WORDS = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
am is are was were be been being do does did doing done have has had having
can could shall should will would might must
and or but nor if then than because as while though although until unless since so
at by for from in into of off on onto out over to toward towards under up upon with without within
about above across after against along among around before behind below beneath beside between beyond down during
through throughout via
what which who whom whose when where why how whether
there here not no any some each every either neither both all such own same other another
too very just also only even still yet ever again once more most much many few less least
s t d ll m re ve don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn ain
"""
STOP_WORDS = frozenset(_WORDS.split())

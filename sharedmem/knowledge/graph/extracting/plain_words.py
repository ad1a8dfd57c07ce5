"""Words that begin a sentence, or stand in capitals, without being names; English."""

from __future__ import annotations

_WORDS = """
    a about above accordingly actually after afterwards again all almost already also although always am among an and
    another any anybody anyone anything anyway apart apparently are around as at away back be because been before behind
    being below beside besides best better between both but by bye can cannot cheers clearly congratulations correct
    correction could currently dear definitely despite did do does doing done down due during each earlier either else
    enough even eventually ever every everybody everyone everything exactly except excuse fact finally fine first
    following for former formerly fortunately from further furthermore generally get give given go going good got great
    had has have having he hello hence her here hers herself hey hi him himself his hopefully how however i if in
    incidentally indeed instead into is it its itself just kind last late lately later least less let like look many may
    maybe me meanwhile might mine more moreover morning most mostly much must my myself namely near nearly neither never
    nevertheless new next no nobody none nor not nothing now of off often oh ok okay on once one only onto or order
    orders other others otherwise our ours out over own per perhaps please previously probably quite rather re really
    recently regarding regards right same say second see seeing seems several shall she should simply since so some
    somebody somehow someone something sometimes soon sorry still such sure surely ok than thank thanks that the their
    theirs them themselves then there therefore these they thing things third this those though through throughout thus
    to today together tomorrow tonight too toward towards two under unfortunately unless until up update upon us usually
    very via was we well welcome were what whatever when whenever where whereas wherever whether which while who whoever
    whom whose why will with within without would yeah yep yes yesterday yet you your yours yourself
    ceo cto cfo coo cio vp svp evp hr it faq asap fyi ps btw eta id url api pdf vat iban usd eur gbp chf jpy
    mr mrs ms miss dr prof sir madam
    invoice ticket customer email mail phone address user agent note subject
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december
    """
PLAIN_WORDS = frozenset(_WORDS.split())

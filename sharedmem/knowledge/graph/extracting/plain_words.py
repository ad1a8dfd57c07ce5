"""Words that are no names though they may have a capital, and those by which people mean themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tongue(NamedTuple):
    """What of a language matters for finding names; all in lower case."""

    plain: frozenset[str]
    """Words that are no names, however they are written."""
    me: frozenset[str]
    you: frozenset[str]
    owning: frozenset[str]
    """Of these two the ones behind which stands what belongs to them: `my`."""
    shortened: frozenset[str]
    """What follows an apostrophe behind them: `'ve`."""
    has_capital_nouns: bool = False
    """Whether any noun has a capital, so that one alone is no sign of a name."""


_ENGLISH = """
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
_GERMAN = """
    aber alle alles als also am an andere auch auf aus bald bei beim bin bis bitte da dabei dafür damit danach dann
    das dass dein deine dem den denn der des deshalb die dies diese dieser dieses doch dort du durch ein eine einem
    einen einer eines entschuldigung er erst es etwas euch euer falls für ganz gar gegen gestern guten hallo hat
    hatte heute hier hinter ich ihm ihn ihnen ihr ihre im immer in ins ist ja jede jeder jedes jetzt kann kein keine
    können könnte leider man mein meine mich mir mit morgen nach nein nicht noch nun nur ob oder ohne schon sehr
    seit sein seine seit sich sie sind so sondern tag trotzdem über um und uns unser unsere unter viel vielleicht
    vielen vom von vor wann war waren warum was weil weiter welche wenn wer werden wie wieder wir wird wo würde zu
    zum zur zwar zwischen dank grüße montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz
    april mai juni juli august september oktober november dezember
    """
_FRENCH = """
    à afin ainsi alors après assez au aucun aujourd'hui aussi autre aux avant avec avoir beaucoup bien bonjour
    bonsoir car ce cela celle celui ces cet cette chaque chez comme comment dans de depuis des donc du elle elles en
    encore enfin ensuite entre est et être eux hier il ils j'ai je jusque la le les leur leurs lui ma mais
    malheureusement me merci mes moi mon ne ni non nos notre nous on ont ou où oui par parce pardon pas pendant
    personne peut-être peu plus pour pourquoi puis quand que quel quelle qui quoi sa sans sauf se ses si son sont
    sous sur ta tandis te tes toi ton toujours tous tout toute toutes très trop tu un une vers voici voilà vos votre
    vous lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril mai juin juillet août
    septembre octobre novembre décembre
    """


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTICLES = _words("de van von der den del della di da dos du la le bin al of")
"""Stand inside of names."""
FILLERS = _words(
    "a an the just now recently already also finally currently actually really very still then today so well please "
    "presently lately newly officially permanently temporarily eventually soon again too"
)
"""English words that change nothing of what a sentence says."""

_TONGUES = {
    "en": Tongue(
        _words(_ENGLISH),
        _words("i me my mine myself"),
        _words("you your yours yourself"),
        _words("my your"),
        _words("m ve ll d re"),
    ),
    "de": Tongue(
        _words(_GERMAN),
        _words("ich mich mir mein meine meinem meinen meiner meines"),
        _words("sie ihnen ihr ihre ihrem ihren ihrer du dich dir dein deine deinem deinen deiner"),
        _words("mein meine meinem meinen meiner meines ihr ihre ihrem ihren ihrer dein deine deinem deinen deiner"),
        frozenset(),
        has_capital_nouns=True,
    ),
    "fr": Tongue(
        _words(_FRENCH),
        _words("je moi mon ma mes"),
        _words("vous votre vos tu toi ton ta tes"),
        _words("mon ma mes votre vos ton ta tes"),
        frozenset(),
    ),
}


def tongue_of(languages: Sequence[str]) -> Tongue:
    """What matters in texts of any of these languages: `en`, `de`, `fr`."""
    tongues = [_TONGUES[language] for language in languages]
    plain, me, you, owning, shortened = (
        frozenset[str]().union(*sets) for sets in zip(*(tongue[:5] for tongue in tongues), strict=True)
    )
    return Tongue(plain, me, you, owning, shortened, any(tongue.has_capital_nouns for tongue in tongues))

"""What short statements say, and what questions ask for: claims, standing instructions, cues and attributes.

A claim is replaced by a later one. Only attributes that have one value at a time are claims: home, employer, marital
status, what a functional noun names ("my phone number is", "the deadline of the report is now"), a measure ("the crane
on pier 3 lifts 40 tons"). Likes, visits and other events add up instead. A long text is a document and makes no claim.

Instructions and preferences, such as "always name versions when I ask about libraries", matter whatever is asked. Rules
find them by their words (always, never, from now on, when I ask about, prefer, favourite, hate), and read their topic.

A cue is a single word that shows what kind of answer a question asks for, or a text could give: a time, a number, a
name.

An attribute is what a question asks for and a statement tells: `live`, `move` and `address` are all `home`. A short
question often has no word in common with its answer ("where does she live?", "I moved to York"), and static word
vectors hardly see that both are about a home. A lexicon knows which verbs and nouns are about the same attribute of a
person or thing, and what kind of answer a question word wants: a place, a time, a number, a name.

All are rules of English. A text in another language has few of these words and no attributes: searches rank it as if
the rules did not exist.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import chain, islice, pairwise, zip_longest
from typing import Literal, NamedTuple, get_args

from sharedmem.text.analysis import WORD, document_terms, split_sentences, stem_word
from sharedmem.text.contradictions import NUMBERS
from sharedmem.text.vocabulary import CALENDARS, ENGLISH_MONTHS

LONGEST_STATEMENT = 400
"""Characters from which a text is a document."""
_MOST_CLAIMS = 4
_SUBJECT = r"(?P<subject>I|[Ww]e|[Hh]e|[Ss]he|[A-Z][\w']+(?: [A-Z][\w']+)?|[Tt]he [\w ]{2,40}?)"
_ADVERB = r"(?:'ve|'m| have| has| had| am| is| are| now| just| recently| currently| also| still| finally)*"
_NOT_WITHIN = r"(?:[^.,;!?]|\.(?=\d))"
_VALUE = rf"\b(?P<value>(?! (?:me|you|him|her|us|them|in|up)\b){_NOT_WITHIN}{{2,60}})"
_SINGLE_VALUED = tuple(
    (attribute, re.compile(rf"\b{_SUBJECT}{_ADVERB} {rest}"))
    for attribute, rest in (
        ("home", rf"(?:lives?|living|resides?|moved|relocated|settled) (?:in|to|at){_VALUE}"),
        ("employer", rf"(?:works?|working|employed) (?:for|at|by){_VALUE}"),
        ("employer", rf"(?:joined|(?:started|began) (?:work(?:ing)? )?(?:at|with)){_VALUE}"),
        ("status", r"(?P<value>married|single|divorced|engaged|widowed|retired)\b"),
    )
)
_FUNCTIONAL_WORDS = """
address phone number email name age price cost budget deadline date version password manager boss owner capital ceo
limit speed size weight height status location time rate salary port url favourite favorite capacity fee code model
leader team lead supervisor landlord dentist doctor car default colour color plan goal target quota
"""
_FUNCTIONAL = "|".join(_FUNCTIONAL_WORDS.split())
_FUNCTIONAL_NOUN = re.compile(
    rf"\b(?P<whose>[Mm]y|[Oo]ur|[Tt]he|[A-Z][\w]+'s) (?P<noun>(?:[\w-]+ ){{0,3}}?(?:{_FUNCTIONAL})(?: [\w-]+){{0,5}}?)"
    r" (?:is|are|was (?:changed|moved|set) to|has (?:changed|moved) to|changed to|will be)(?: now| currently)?\b"
    rf"(?P<value>{_NOT_WITHIN}{{1,60}})"
)
_MEASURE_VERB_FORMS = """
is has cost costs take takes weigh weighs lift lifts hold holds contain contains allow allows last lasts pay pays
open opens close closes start starts end ends
"""
_MEASURE_VERBS = frozenset(_MEASURE_VERB_FORMS.split())
_MEASURE = re.compile(
    r"^(?P<subject>(?:The|My|Our|[A-Z])[\w' -]{2,60}?) (?:now |currently )?"
    rf"(?P<verb>{'|'.join(sorted(_MEASURE_VERBS))})"
    r" (?P<rest>(?:now |currently |at |only )*[$€£]?\d[\d.,:]*(?: ?[\w%°/€$£]+){0,3})\W*$"
)
_NUMBER = re.compile(r"[\d.,:]+")
_DIGIT = re.compile(r"\d")
# Words of which a sentence of `_SINGLE_VALUED` has one, and a sentence of `_FUNCTIONAL_NOUN`: most texts have neither.
_SINGLE_VALUE_WORDS = """
live lives living reside resides moved relocated settled work works working employed joined started began
married single divorced engaged widowed retired
"""
_SINGLE_VALUED_WORDS = frozenset(_SINGLE_VALUE_WORDS.split())
_FUNCTIONAL_NOUNS = frozenset(_FUNCTIONAL_WORDS.split())
_FILLERS = frozenset({"now", "currently", "only", "just", "the", "a", "an"})
_FIRST_PERSON = frozenset({"i", "we", "my", "our"})


class StatementClaim(NamedTuple):
    """What a statement says of a subject, in a form that is compared."""

    subject: str
    """In small letters; empty for the speaker."""
    attribute: str
    value: str

    def encoded(self, owner: str) -> str:
        """Return the claim as 16 hexadecimal digits: twelve for what it is about, four for the value.

        Args:
            owner: whose the statement is: the same words of two users are two claims.
        """
        about = blake2b(f"{owner}\0{self.subject}\0{self.attribute}".encode(errors="replace"), digest_size=6)
        return about.hexdigest() + blake2b(self.value.encode(errors="replace"), digest_size=2).hexdigest()


# Several features of a memory are read from its words, one after the other.
@lru_cache(maxsize=256)
def _folded_words(text: str) -> frozenset[str]:
    """Return the words of a text without case."""
    return frozenset(WORD.findall(text.casefold()))


def claims_of(text: str) -> tuple[StatementClaim, ...]:
    """Return the claims of a short text, each attribute of a subject once; none of a question or a document."""
    if len(text) > LONGEST_STATEMENT:
        return ()
    found: dict[tuple[str, str], StatementClaim] = {}
    words = _folded_words(text)
    may_name, may_place = not _FUNCTIONAL_NOUNS.isdisjoint(words), not _SINGLE_VALUED_WORDS.isdisjoint(words)
    if may_name or may_place or (_DIGIT.search(text) and not _MEASURE_VERBS.isdisjoint(words)):
        for sentence in split_sentences(text):
            if sentence.endswith("?"):
                continue
            for claim in _claims_of_sentence(sentence, may_name=may_name, may_place=may_place):
                found[claim.subject, claim.attribute] = claim
    standing = find_standing(text)
    if standing is not None and standing.kind == "instruction":
        topic = " ".join(sorted(standing.terms)) if standing.topic else ""
        if topic:
            found["", f"instruction {topic}"] = StatementClaim("", f"instruction {topic}", _normal(standing.text))
    return tuple(found.values())[:_MOST_CLAIMS]


def _claims_of_sentence(sentence: str, *, may_name: bool, may_place: bool) -> list[StatementClaim]:
    """Return the claims of one sentence.

    Args:
        sentence: the sentence.
        may_name: whether the text has a functional noun.
        may_place: whether the text has a word of an attribute with one value.
    """
    named = _FUNCTIONAL_NOUN.search(sentence) if may_name else None
    if named is not None:
        whose = named["whose"].lower().removesuffix("'s")
        subject = "" if whose in _FIRST_PERSON or whose == "the" else whose
        # `the address` may be anybody's, and is another one than `my address`.
        noun = " ".join([*(["the"] if whose == "the" else []), *sorted(set(document_terms(named["noun"])))])
        return [StatementClaim(subject, noun, _normal(named["value"]))]
    found = [(attribute, pattern.search(sentence)) for attribute, pattern in (_SINGLE_VALUED if may_place else ())]
    claims = [
        StatementClaim(_subject(one["subject"]), attribute, _normal(one["value"])) for attribute, one in found if one
    ]
    measure = _MEASURE.match(sentence)
    if measure is None or claims:
        return claims
    about = " ".join(document_terms(f"{measure['subject']} {measure['verb']}"))
    unit = _NUMBER.sub("#", _normal(measure["rest"]))
    return [StatementClaim("", f"{about} {unit}", _normal(measure["rest"]))]


def _subject(text: str) -> str:
    plain = text.lower()
    return "" if plain in _FIRST_PERSON else plain.removeprefix("the ")


def _normal(value: str) -> str:
    return " ".join(word for word in value.lower().split() if word not in _FILLERS).strip(" .,;!'\"")


# -- instructions and preferences ----------------------------------------------------------------


StandingKind = Literal["instruction", "preference"]

_LONGEST_INSTRUCTING = 4_000
"""Characters of a text that are read, from its start."""
_LONGEST_SENTENCE = 600
_MAY_STAND = re.compile(
    r"\b(?:always|never|from now on|going forward|in future|in the future|whenever|every time|each time|when i ask"
    r"|if i ask|prefer\w*|favou?rite|rather(?! not)|hate|dislike|can't stand|cannot stand|don't like|do not like"
    r"|big fan of|remember to|make sure|call me|address me)\b",
    re.IGNORECASE,
)
# Each match of `_MAY_STAND` has one of these words, or a form of `prefer`.
_STANDS_WITH_WORDS = """
always never now forward future whenever time ask favourite favorite rather hate dislike stand like fan remember
sure call address
"""
_STANDING_WORDS = frozenset(_STANDS_WITH_WORDS.split())
_LEAD = r"^(?:(?:ok|okay|oh|and|also|so|but|hey|hi|well|please|pls|kindly|yes|no|user|human)\b[,:]?\s*)*"
_INSTRUCTION = re.compile(
    _LEAD + r"(?:always\b|never\b|(?:do not|don't) ever\b|from now on\b|going forward\b|in (?:the )?future\b"
    r"|(?:please )?(?:make sure|remember|be sure)(?: to| you| that you)? (?:always|never)\b|call me\b|address me as\b"
    r"|i (?:want|need|expect) you to (?:always|never)\b|you (?:should|must) (?:always|never)\b"
    r"|(?:whenever|every time|each time|when|if) i ask\b.{1,120},\s*(?:please )?\w+)",
    re.IGNORECASE,
)
# `I always forget` tells a habit; an imperative has no subject before it.
_ASKED_FOR = re.compile(
    _LEAD + r"(?!i\b|we\b|my\b|he\b|she\b|it\b|they\b)\w+\b.{3,200}\bwhen(?:ever)? i ask\b", re.IGNORECASE
)
_PREFERENCE = re.compile(
    r"\b(?:i|we)(?:'d|'m| would| do| am| really| strongly| also| usually| generally| much| just| kinda| still| now)*"
    r" (?:prefer(?:red)?|rather|hate|dislike|can't stand|cannot stand|don't like|do not like)\b"
    r"|\bmy (?:personal |strong )?preference\b|\bmy favou?rites?\b|\bi(?:'m| am) (?:not )?a (?:big |huge )?fan of\b",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"\bwhen(?:ever)? (?:i|we) (?:ask|talk|inquire|have questions?|want to know)(?: you)?"
    r" (?:about|for|on|whether|how)\s+(.+)"
    r"|\b(?:whenever|every time|each time|when|if) i ask (?:about|for)\s+(.+?),"
    r"|\b(?:when it comes to|regarding|concerning)\s+(.+)",
    re.IGNORECASE,
)
_NO_TOPIC_WORDS = """
always never please make sure from now future going forward whenever every time each when ask prefer preference prefers
favourite favorite rather hate dislike stand like really strongly also usually generally instead over than want need
include provide use give tell remember call add keep fan big
"""


_LOOKUP = re.compile(
    r"\b(?:did|was|were|had|have (?:i|we|they|you)|has (?:he|she|it)|how (?:many|much|long|often|old)|ago"
    r"|last (?:week|month|year|time)|who|whose|previous(?:ly)?|earlier|so far|recent(?:ly)?|most|current(?:ly)?"
    r"|total|average|minimum|maximum|difference (?:in|between)|happened|(?:which|what) order|order of"
    r"|what is the name|remind me|we (?:discussed|talked)|you (?:said|told|mentioned|gave|recommended))\b",
    re.IGNORECASE,
)


def is_lookup(query: str) -> bool:
    """Return whether a query asks what was said or happened, which instructions and preferences do not answer."""
    return _LOOKUP.search(query) is not None


class Standing(NamedTuple):
    """An instruction or preference that stands until it is replaced."""

    kind: StandingKind
    text: str
    """The sentence."""
    topic: str
    """What it is about, as said; empty if it is about everything."""

    @property
    def terms(self) -> frozenset[str]:
        """The significant words of its topic, as stems; of its sentence if it names none."""
        return frozenset(document_terms(self.topic or self.text)) - _terms_without_topic()


@cache
def _terms_without_topic() -> frozenset[str]:
    return frozenset(document_terms(_NO_TOPIC_WORDS))


@lru_cache(maxsize=256)
def find_standing(text: str) -> Standing | None:
    """Return the first standing instruction of a text, or else its first preference; None without one."""
    text = text[:_LONGEST_INSTRUCTING].replace("\u2019", "'")
    if _STANDING_WORDS.isdisjoint(_folded_words(text)) and "prefer" not in text.casefold():
        return None
    if not _MAY_STAND.search(text):
        return None
    preference: Standing | None = None
    for sentence in split_sentences(text):
        if len(sentence) > _LONGEST_SENTENCE or (sentence.endswith("?") and not _PREFERENCE.search(sentence)):
            continue
        if _INSTRUCTION.search(sentence) or _ASKED_FOR.search(sentence):
            return Standing("instruction", sentence, _topic_of(sentence))
        if preference is None and _PREFERENCE.search(sentence):
            preference = Standing("preference", sentence, "")
    return preference


def _topic_of(sentence: str) -> str:
    found = _TOPIC.search(sentence)
    topic = "" if found is None else next(filter(None, found.groups()), "")
    return topic.strip().rstrip(".!,;")


# -- cues of answers -----------------------------------------------------------------------------


TIME, NUMBER, NAME = 1, 2, 4
"""Bits of the kinds."""
_LONGEST_CUED = 3000
"""Characters of a text that are read, from its start."""
_TIME_CUE_WORDS = """
yesterday today tonight tomorrow ago last recently week weeks weekend month months year years
monday tuesday wednesday thursday friday saturday sunday summer winter spring autumn fall
january february march april june july august september october november december
"""
_TIME_CUES = frozenset(_TIME_CUE_WORDS.split())
_NUMBER_CUE_WORDS = """
one two three four five six seven eight nine ten eleven twelve twenty thirty hundred thousand
twice once couple several dozen half
"""
_NUMBER_CUES = frozenset(_NUMBER_CUE_WORDS.split())
_YEAR = re.compile(r"(?:19|20)\d\d")
# A capital letter that does not begin a sentence, or something in quotation marks.
_CAPITAL_NAME = re.compile(r'(?<=[a-z,;] )[A-Z][a-z]+|"[^"]+"|\u201c[^\u201d]+\u201d')
_ASKS_TIME = re.compile(
    r"\bwhen\b|\bhow long\b|\b(?:what|which|how many) (?:date|day|month|year|time|week|hour|minute)s?\b"
)
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|often|old|long|far|big|large|high|tall)\b")
_ASKS_NAME = re.compile(r"\b(?:what|which|who|where|whose)\b")


def text_cues(text: str, words: Iterable[str]) -> int:
    """Return which kinds of answer a text contains.

    Args:
        text: the text.
        words: its words, as written.
    """
    known = {word.lower() for word in words}
    has_time = not _TIME_CUES.isdisjoint(known) or any(map(_YEAR.fullmatch, known))
    has_number = not _NUMBER_CUES.isdisjoint(known) or any(word[0].isdigit() for word in known)
    return TIME * has_time | NUMBER * has_number | NAME * (_CAPITAL_NAME.search(text[:_LONGEST_CUED]) is not None)


def query_cues(query: str) -> int:
    """Return which kinds of answer a query asks for."""
    asked = query.lower()
    kinds = ((TIME, _ASKS_TIME), (NUMBER, _ASKS_NUMBER), (NAME, _ASKS_NAME))
    return sum(kind for kind, pattern in kinds if pattern.search(asked))


# -- attributes of questions and statements -------------------------------------------------------


# A line each: an attribute and the words that are about it; phrases have `_` between their words. Inflected forms count
# as the same; irregular ones are listed.
_LEXICON = """
home: live living reside residence resident move moved_in relocate settle settled home house address flat apartment
    based_in dwell neighbourhood neighborhood town city rent_a bought_a_house lodge inhabit
origin: grow_up grew_up raise upbringing childhood as_a_child youth early_years school_years hometown come_from
    came_from village be_from am_from born_in native_of
work: work job employ employer employee employment occupation profession career for_a_living earn_her_living
    earn_his_living company office hire colleague retire retirement pension freelance self_employed unemployed firm
    import export workplace run_a join
profession: job occupation profession for_a_living earn_her_living earn_his_living work_as works_as trade teacher
    teach nurse lawyer law engineer driver drive cook chef farmer painter potter baker carpenter plumber electrician
    accountant clerk architect pilot sailor soldier journalist writer musician singer actor scientist programmer
    developer designer pharmacist surgeon librarian mechanic gardener hairdresser translator waiter student cashier
    judge consultant professor researcher photographer butcher tailor welder miner fisherman firefighter policeman
    secretary therapist psychologist veterinarian vet midwife analyst editor builder barber import export practise
position: position promote promotion job_title role rank team_lead head_of made_head director post executive
    chair_of appointed
boss: boss manager supervisor superior report_to chief line_manager led_by
income: salary earn income wage make_about a_month a_year per_year an_hour per_hour per_month pay_me paid_by
    money_does
birth: born birth birthday birthdate came_into_the_world celebrate_her_birthday celebrate_his_birthday
age: age how_old years_old turned aged i_ll_be turning
spouse: marry married husband wife spouse engaged fiance fiancee divorce widow widower partner
wedding: wedding bride groom get_married got_married reception ceremony
child: child children son daughter kid baby boy girl toddler twin little_one stepson stepdaughter
pregnancy: pregnant expecting due expect_a_baby
sibling: brother sister sibling twin_brother twin_sister
parent: mother father mum mom dad parent
grandparent: grandmother grandfather grandma grandpa granny
relative: uncle aunt cousin nephew niece
possession: own buy bought purchase possess belong owner ours mine
vehicle: car van truck lorry motorbike motorcycle bike bicycle scooter vehicle boat canoe saab volvo ford toyota
    tesla bmw audi fiat volkswagen skoda drive_around get_around sailboat moped
pet: pet dog cat parrot bird hamster horse rabbit tortoise turtle goldfish bee hen chicken goat sheep pony snake
    lizard animal puppy kitten guinea_pig
name: called named name answers_to goes_by nickname
liking: like_best love enjoy favourite favorite prefer preference fond fan adore nothing_beats makes_me_happy
    like_most can_t_get_enough passionate keen_on
dislike: dislike hate can_t_stand cannot_stand detest loathe annoy can_t_bear cannot_bear disgust not_like
    don_t_like doesn_t_like turn_off repulse
opinion: opinion think feel believe view_on mistake voted vote favour_of support against if_you_ask_me in_my_view
    convinced
diet: eat intolerant intolerance vegetarian vegan gluten nut peanut food diet makes_me_ill lactose mushroom fish
    meat pork cheese egg shellfish bread fruit vegetable meal dish rash
allergy: allergic allergy rash intolerant intolerance makes_me_ill reaction peanut gluten lactose pollen
drink: tea coffee milk sugar juice beverage espresso cappuccino water
alcohol: drink_alcohol alcohol sober beer wine teetotal drunk whisky
smoking: smoke smoker smoking cigarette tobacco
language: language speak talk_in tongue bilingual fluent english dutch polish german french spanish italian
    portuguese russian turkish arabic chinese japanese swedish swahili korean hindi greek hebrew danish norwegian
    finnish czech hungarian persian welsh irish latin mandarin
study: study studied studies university degree education college graduate graduated major_in qualification learn_at
    law_school dropped_out phd master_s bachelor diploma thesis
class: class grade school kindergarten year_at_school pupil
teaching: taught teach learn showed_me showed_her showed_him show_how lesson instruct got_me_into tutor
music: play_the instrument cello piano violin guitar drum drummer flute sing voice choir orchestra bass trumpet
    saxophone clarinet harp music band concert
band: band
sport: swim exercise fit sport gym cycling yoga climb workout keep_fit jog run_kilometre kilometre row rowing ski
    tennis football soccer basketball volleyball badminton boxing judo karate hike surf skate golf stay_in_shape
    run_every
race: marathon race triathlon
plan: prepare train training sign_up signed_up enter going_to_run goal want_to aim ambition plan_to next_year
    next_summer
travel: flight fly travel trip visit holiday vacation journey go_next going_next leave_for be_in i_ll_be_in off_to
    tour cruise abroad
honeymoon: honeymoon after_the_wedding
commute: commute get_to_the_office get_to_work way_to_work to_the_office train_takes it_takes_me by_bike by_bus
    by_train
price: cost price paid expensive charge fee how_much_did bargain cheap
landlord: landlord landlady rent tenant lease owns_her_flat owns_his_flat owns_the_flat flat_belongs
phone_number: phone_number telephone reach_me get_me_on call_her call_him call_me call_you ring dial extension
    hotline
email: email e_mail mail write_to send_him send_her inbox
size: size wear_size shoe collar fits_him fits_her shirt take_a_large take_a_small take_a_medium
sleep: go_to_bed bed sleep asleep nap lights_out bedtime
waking: wake get_up rise awake alarm_rings
shift: shift begin_work begin_her start_work get_off finish_work finished_with off_work working_hours shift_starts
    clock_out clock_in shift_ends
injury: broke broke_my injury injure sprain accident wound fracture hurt_herself hurt_himself hurt twisted
operation: operation surgery removed appendix operated
hearing: hear hearing deaf
sight: sight eyesight blind see_well glasses eye vision
doctor: doctor dentist physician practice clinic tooth teeth gp physiotherapist hospital specialist
medication: vitamin medicine pill supplement medication tablet dose insulin inject drug penicillin antibiotic
    prescription
illness: illness disease diabetes diabetic asthma cancer migraine condition diagnosed suffer
transfer: sold sell gave give receive bought_her buyer pass_on went_to got_her got_his neighbour_s_now who_took
keys: key
whereabouts: lost lose keep_the left_my hide find in_the_drawer top_drawer stored
device: mobile smartphone laptop computer operating_system fairphone iphone android linux debian windows macos
    mobile_phone my_phone_is fedora ubuntu thinkpad macbook
code: code pin password combination passcode unlock switched_off open_the opens_with
reading: book reading novel halfway author chapter middle_of bestseller
validity: until_when expire expiry visa valid stay contract ends_in lease until runs_until
seat: seat aisle window_seat sit_on like_to_sit
founding: founded opened found set_up establish bakery shop store business business_partner co_founder start_the
    run_the as_equals cafe startup
leaving: left_the quit_the no_longer resign
monday: monday
tuesday: tuesday
wednesday: wednesday
thursday: thursday
friday: friday
saturday: saturday
sunday: sunday
posture: not_sit standing_desk stand_at
hobby: hobby knit sail paint gardening pastime spare_time free_time collect chess pottery photography play_chess
deadline: deadline submit submission
meeting: meet meeting appointment schedule
religion: religion faith pray mosque temple church
colour: colour color green blue red yellow black white purple orange pink grey brown
height: tall height
weight: weigh weight
friend: friend best_friend mate pal
death: die died death dead pass_away
flavour: flavour flavor ice_cream taste
sofa: sofa couch settee
"""
# What a statement is about beside its attribute: a question about a sister is not about her brother's attribute.
_RELATIONS = frozenset({"child", "sibling", "parent", "grandparent", "relative", "pet", "friend", "boss", "landlord"})
_PERSON_WORDS = """
i me my mine we us our you your he him his she her hers they them their user customer client
"""
_PERSONS = frozenset(_PERSON_WORDS.split())
# Words that show that a question is English; none of them is a word of German, French, Spanish or Italian. To others
# the lexicon would do harm: `die` is an article in German.
_ENGLISH_WORDS = """
what where when who whom whose which how why does did do the my his their our your she he they we tell and of with
"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_TIME_WORDS = """
today tomorrow yesterday morning afternoon evening noon midnight night spring summer autumn winter year month week day
ago early late breakfast am pm past
"""
_TIMES = frozenset([*_TIME_WORDS.split(), *CALENDARS["en"].weekdays.split(), *ENGLISH_MONTHS])
_PLACE_WORD_LIST = """
in at to near from under behind above below beside between inside outside
"""
_PLACES = _PLACE_WORD_LIST.split()
_PLACE_WORDS = frozenset(_PLACES)
_PLACE = re.compile(
    rf"\b(?:{'|'.join(_PLACES)})\s+"
    rf"(?!(?:the |my )?(?:{'|'.join(sorted(_TIMES))}|\d+)\b)\w"
)
_CLOCK = re.compile(r"\bat (?:half|quarter|\d|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)")
# A capital letter that begins no sentence; `I` is no name.
_NAME = re.compile(r"(?<=[^\W\d_A-Z.!?] )(?!I\b)[A-Z]\w|\b(?:Mr|Mrs|Ms|Dr)\b")
_PERSON_NAMED = re.compile(r"(?<=\S )((?!I\b)[A-Z][\w']*[a-z])(?:'s)?\b")
_OTHER_SUBJECT, _OTHER_ANSWER = 0.5, 0.6
_FEW_SENTENCES = 3
_LONGEST_READ = 2_000
"""Characters of a text that are read, from its start."""

AnswerKind = Literal["place", "time", "number", "name"]
_ASKING: tuple[tuple[AnswerKind, frozenset[str], frozenset[tuple[str, str]]], ...] = (
    ("place", frozenset({"where"}), frozenset({("which", "city"), ("what", "city"), ("which", "town")})),
    ("time", frozenset({"when"}), frozenset({("what", "time"), ("which", "day"), ("what", "day"), ("what", "date")})),
    ("name", frozenset({"who", "whom", "whose", "name", "called"}), frozenset()),
    (
        "number",
        frozenset({"number", "size", "code", "age", "price", "salary", "cost"}),
        frozenset(("how", word) for word in ("much", "many", "old", "long", "far", "tall", "often", "big")),
    ),
)


class Asked(NamedTuple):
    """What a question asks for."""

    attributes: frozenset[str]
    answer: frozenset[AnswerKind]
    """The kinds of answer that it wants."""
    is_personal: bool
    """Whether it asks about a person, by a pronoun such as `she`."""


class Told(NamedTuple):
    """What a statement tells."""

    attributes: frozenset[str]
    answer: frozenset[AnswerKind]
    """The kinds of answer that it may hold."""


_KIND = "="
"""Sign before a kind of answer among attributes."""
_KINDS: tuple[AnswerKind, ...] = get_args(AnswerKind)


def encode_told(told: Told) -> tuple[str, ...]:
    """Return what a statement tells as short texts, such as `home` and `=place`; none without an attribute."""
    if not told.attributes:
        return ()
    return (*sorted(told.attributes), *(f"{_KIND}{kind}" for kind in sorted(told.answer)))


@lru_cache(maxsize=8192)
def decode_told(values: tuple[str, ...]) -> Told:
    """Return what `encode_told` has encoded; unknown texts are attributes that no question asks for."""
    return Told(
        frozenset(value for value in values if not value.startswith(_KIND)),
        frozenset(kind for kind in _KINDS if f"{_KIND}{kind}" in values),
    )


def attribute_fits(question: str, told: Mapping[str, Told], named: Container[str]) -> dict[str, float]:
    """Return how well statements fit what a question about a person asks for, above 0 to 1, by id.

    Those that do not fit are left out; so are all for a question without a pronoun such as `she` or `my`.

    Args:
        question: the question.
        told: what each statement tells, by id.
        named: ids of those with a word of the question: only these count for a question that names a person.
    """
    asked = asked_by(question)
    if not asked.attributes or not asked.is_personal or not told:
        return {}
    rarity = _rarity(one.attributes for one in told.values())
    names_person = _PERSON_NAMED.search(question) is not None
    fits = ((id_, _match(asked, one, rarity)) for id_, one in told.items() if not names_person or id_ in named)
    return {id_: fit for id_, fit in fits if fit > 0}


class _Lexicon(NamedTuple):
    """The attributes by the stems of their words and phrases."""

    by_first: dict[str, list[tuple[tuple[str, ...], frozenset[str]]]]
    """The further stems and the attributes of each phrase by its first stem, the longest first."""
    words: dict[str, tuple[str, ...]]
    """The single words about each attribute."""


@lru_cache(maxsize=1)
def _lexicon() -> _Lexicon:
    phrases: dict[tuple[str, ...], set[str]] = {}
    words: dict[str, tuple[str, ...]] = {}
    for line in _LEXICON.replace("\n    ", " ").strip().splitlines():
        attribute, _, entries = line.partition(": ")
        words[attribute] = tuple(entry for entry in entries.split() if "_" not in entry)
        for entry in entries.split():
            phrases.setdefault(tuple(map(stem_word, entry.split("_"))), set()).add(attribute)
    by_first: dict[str, list[tuple[tuple[str, ...], frozenset[str]]]] = {}
    for stems, found in sorted(phrases.items(), key=lambda phrase: -len(phrase[0])):
        by_first.setdefault(stems[0], []).append((stems[1:], frozenset(found)))
    return _Lexicon(by_first, words)


def attributes_of(text: str) -> frozenset[str]:
    """Return the attributes that a text is about, such as `home` for "I moved to York"."""
    known = _lexicon().by_first
    stems = list(map(stem_word, WORD.findall(text[:_LONGEST_READ].lower().replace("'s", ""))))
    found: set[str] = set()
    if known.keys().isdisjoint(stems):
        return frozenset()
    end = 0
    for place, stem in enumerate(stems):
        if place < end or stem not in known:
            continue
        for further, attributes in known[stem]:
            # The longest phrase counts alone: an operating system is no operation.
            if tuple(stems[place + 1 : place + 1 + len(further)]) == further:
                found |= attributes
                end = place + 1 + len(further)
                break
    return frozenset(found)


@lru_cache(maxsize=1024)
def asked_by(question: str) -> Asked:
    """Return what a question asks for; nothing if it is not English."""
    words = WORD.findall(question[:_LONGEST_READ].lower())
    if _ENGLISH.isdisjoint(words):
        return Asked(frozenset(), frozenset(), is_personal=False)
    pairs = set(pairwise(words))
    answer = {kind for kind, single, double in _ASKING if not single.isdisjoint(words) or not double.isdisjoint(pairs)}
    return Asked(attributes_of(question), frozenset(answer), not _PERSONS.isdisjoint(words))


@lru_cache(maxsize=8192)
def told_by(text: str) -> Told:
    """Return what a statement tells."""
    text = text[:_LONGEST_READ]
    attributes = attributes_of(text)
    if not attributes:
        return Told(frozenset(), frozenset())
    lowered = text.lower()
    words = set(WORD.findall(lowered))
    found: set[AnswerKind] = set()
    if not _PLACE_WORDS.isdisjoint(words) and _PLACE.search(lowered):
        found.add("place")
    if not _TIMES.isdisjoint(words) or ("at" in words and _CLOCK.search(lowered)):
        found.add("time")
    if not NUMBERS.keys().isdisjoint(words) or any(map(str.isdigit, [word[0] for word in words])):
        found |= {"number", "time"} if re.search(r"\b(?:19|20)\d\d\b", text) else {"number"}
    if lowered != text and _NAME.search(text):
        found.add("name")
    return Told(attributes, frozenset(found))


def best_match(question: str, text: str, *, speaker: str = "", rarity: Mapping[str, float] | None = None) -> float:
    """Return how well the best sentence of a text fits what a question asks for, 0 to 1.

    0 without an attribute in common, or if the question names a person who is neither in the text nor its speaker.

    Args:
        question: the question.
        text: any text; the first 2,000 characters count.
        speaker: whose words the text is.
        rarity: how much each attribute tells among the texts, 1 for a rare one; None if all tell the same.
    """
    asked = asked_by(question)
    if not asked.attributes:
        return 0.0
    names = [found[1].casefold() for found in _PERSON_NAMED.finditer(question)]
    around = f"{text} {speaker}".casefold()
    if names and not any(name in around for name in names):
        return 0.0
    return max((_match(asked, told, rarity) for told in _told_in(text[:_LONGEST_READ])), default=0.0)


@lru_cache(maxsize=2048)
def _told_in(text: str) -> tuple[Told, ...]:
    """Return what each sentence of a text tells."""
    return tuple(map(told_by, split_sentences(text)))


def _match(asked: Asked, told: Told, rarity: Mapping[str, float] | None = None) -> float:
    """Return how well a statement fits what a question asks for, 0 to 1; 0 without an attribute in common."""
    common = asked.attributes & told.attributes
    if not common:
        return 0.0
    weights = {name: 1.0 if rarity is None else rarity.get(name, 1.0) for name in asked.attributes}
    share = sum(weights[name] for name in common) / sum(weights.values())
    if _differ(asked, told):
        share *= _OTHER_SUBJECT
    if asked.answer:
        share *= 1.0 if asked.answer & told.answer else _OTHER_ANSWER
    return share


def is_about_another(question: str, text: str) -> bool:
    """Return whether a text of few sentences is about another person than a question: a sister instead of the user."""
    told, asked = _told_in(text[:_LONGEST_READ]), asked_by(question)
    return 0 < len(told) <= _FEW_SENTENCES and all(_differ(asked, one) for one in told)


def _differ(asked: Asked, told: Told) -> bool:
    """Return whether a question about a sister meets what the user does, or the other way round."""
    mine, yours = asked.attributes & _RELATIONS, told.attributes & _RELATIONS
    return bool(mine - yours or (yours and not mine))


def rarity_of(texts: Iterable[str]) -> dict[str, float]:
    """Return how much each attribute tells among some texts: 1 if one text is about it, less if many are."""
    told = ([one.attributes for one in _told_in(text[:_LONGEST_READ])] for text in texts)
    return _rarity(frozenset[str]().union(*each) for each in told)


def _rarity(of_texts: Iterable[frozenset[str]]) -> dict[str, float]:
    counts = Counter(attribute for attributes in of_texts for attribute in attributes)
    return {attribute: count**-0.5 for attribute, count in counts.items()}


def related_terms(attributes: Iterable[str], *, most: int) -> tuple[str, ...]:
    """Return words about some attributes, as search terms: those by which an index finds their statements."""
    # The first words of each attribute, then the second ones.
    turns = chain.from_iterable(zip_longest(*(_lexicon().words[attribute] for attribute in sorted(attributes))))
    return tuple(islice(dict.fromkeys(stem_word(word) for word in turns if word), most))

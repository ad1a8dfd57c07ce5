"""What a question asks for and what a statement tells, as attributes: `live`, `move` and `address` are all `home`.

A short question often has no word in common with its answer ("where does she live?", "I moved to York"), and static
word vectors hardly see that both are about a home. These rules of language know which verbs and nouns are about the
same attribute of a person or thing, and what kind of answer a question word wants: a place, a time, a number, a name.
English only; a text in another language has no attributes, and searches rank it as if these rules did not exist.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from itertools import chain, islice, pairwise, zip_longest
from typing import Literal, NamedTuple, get_args

from sharedmem.text.analysis import WORD, stem_word
from sharedmem.text.contradictions import NUMBERS
from sharedmem.text.sentences import split_sentences
from sharedmem.text.vocabulary import CALENDARS, ENGLISH_MONTHS

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
# Words by which a question asks about a person.
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
_PLACE = re.compile(
    r"\b(?:in|at|to|near|from|under|behind|above|below|beside|between|inside|outside)\s+"
    rf"(?!(?:the |my )?(?:{'|'.join(sorted(_TIMES))}|\d+)\b)\w"
)
_CLOCK = re.compile(r"\bat (?:half|quarter|\d|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)")
# A capital letter that begins no sentence; `I` is no name.
_NAME = re.compile(r"(?<=[^\W\d_A-Z.!?] )(?!I\b)[A-Z]\w|\b(?:Mr|Mrs|Ms|Dr)\b")
_NAMED = re.compile(r"(?<=\S )((?!I\b)[A-Z][\w']*[a-z])(?:'s)?\b")
_OTHER_SUBJECT, _OTHER_ANSWER = 0.5, 0.6
_FEW_SENTENCES = 3
_LONGEST = 2_000
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
    names_person = _NAMED.search(question) is not None
    fits = ((id_, match(asked, one, rarity)) for id_, one in told.items() if not names_person or id_ in named)
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
    stems = [stem_word(word) for word in WORD.findall(text[:_LONGEST].lower().replace("'s", ""))]
    found: set[str] = set()
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
    words = WORD.findall(question[:_LONGEST].lower())
    if _ENGLISH.isdisjoint(words):
        return Asked(frozenset(), frozenset(), is_personal=False)
    pairs = set(pairwise(words))
    answer = {kind for kind, single, double in _ASKING if not single.isdisjoint(words) or not double.isdisjoint(pairs)}
    return Asked(attributes_of(question), frozenset(answer), not _PERSONS.isdisjoint(words))


@lru_cache(maxsize=8192)
def told_by(text: str) -> Told:
    """Return what a statement tells."""
    text = text[:_LONGEST]
    words = WORD.findall(text.lower())
    found: set[AnswerKind] = set()
    if _PLACE.search(text.lower()):
        found.add("place")
    if not _TIMES.isdisjoint(words) or _CLOCK.search(text.lower()):
        found.add("time")
    if any(word[0].isdigit() or word in NUMBERS for word in words):
        found |= {"number", "time"} if re.search(r"\b(?:19|20)\d\d\b", text) else {"number"}
    if _NAME.search(text):
        found.add("name")
    return Told(attributes_of(text), frozenset(found))


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
    names = [found[1].casefold() for found in _NAMED.finditer(question)]
    around = f"{text} {speaker}".casefold()
    if names and not any(name in around for name in names):
        return 0.0
    return max((match(asked, told_by(one), rarity) for one in split_sentences(text[:_LONGEST])), default=0.0)


def match(asked: Asked, told: Told, rarity: Mapping[str, float] | None = None) -> float:
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
    told = [told_by(one) for one in split_sentences(text[:_LONGEST])]
    return 0 < len(told) <= _FEW_SENTENCES and all(_differ(asked_by(question), one) for one in told)


def _differ(asked: Asked, told: Told) -> bool:
    """Return whether a question about a sister meets what the user does, or the other way round."""
    mine, yours = asked.attributes & _RELATIONS, told.attributes & _RELATIONS
    return bool(mine - yours or (yours and not mine))


def rarity_of(texts: Iterable[str]) -> dict[str, float]:
    """Return how much each attribute tells among some texts: 1 if one text is about it, less if many are."""
    return _rarity(map(attributes_of, texts))


def _rarity(of_texts: Iterable[frozenset[str]]) -> dict[str, float]:
    counts = Counter(attribute for attributes in of_texts for attribute in attributes)
    return {attribute: count**-0.5 for attribute, count in counts.items()}


def related_terms(attributes: Iterable[str], *, most: int) -> tuple[str, ...]:
    """Return words about some attributes, as search terms: those by which an index finds their statements."""
    words = _lexicon().words
    rows = (words[attribute] for attribute in sorted(attributes))
    # The first words of each attribute, then the second ones.
    turns = chain.from_iterable(zip_longest(*rows))
    return tuple(islice(dict.fromkeys(stem_word(word) for word in turns if word), most))

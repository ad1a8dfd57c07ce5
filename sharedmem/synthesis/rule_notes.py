"""A note of a conversation by rules: its summary, the interaction of user and assistant, and its complexity.

A heuristic without any understanding, with patterns and word lists of some languages. Statements of users and every
sentence with a fact are kept word for word, and of the others the sentences that `text.summaries` finds central.
Nothing is reworded. Evidence of the interaction is quoted or counted, and the rest stays empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from sharedmem.models import Depth, SynthesisMessage
from sharedmem.synthesis.schemas import (
    BehavioralProfile,
    EpisodicContext,
    EpisodicOutput,
    FutureGuidance,
    InteractionInsights,
    SummaryContext,
    SummaryMetadata,
    SummaryOutput,
    SummaryRetrieval,
    WhatFailed,
    WhatWorked,
)
from sharedmem.text.analysis import STOP_WORDS, query_terms, split_sentences
from sharedmem.text.summaries import summarize

# -- the interaction -----------------------------------------------------------------------------


_LIMITATION = "Rules have counted and quoted words, without any understanding."
_LONGEST_QUOTE = 240
_FEW_WORDS, _MANY_WORDS, _ENOUGH_MESSAGES = 8, 60, 3


def describe_interaction(messages: Sequence[SynthesisMessage]) -> EpisodicOutput:
    """Return the observations; fields without evidence are empty."""
    sentences = conversation_sentences(messages)
    user = [each for each in sentences if each.role == "user"]
    return EpisodicOutput(
        context=EpisodicContext(
            available_data=_count_messages(messages),
            user_intent=_intent(user),
            analysis_limitation=_LIMITATION,
        ),
        what_worked=WhatWorked(strategies=_worked(sentences)[:3]),
        what_failed=WhatFailed(strategies=_failed(sentences)[:2], pattern=_errors(user)),
        behavioral_profile=BehavioralProfile(
            communication=_matching_signs(user, {"Wants it brief": BRIEF, "Wants details": DETAILED})
            or _pace(messages),
            learning=_matching_signs(
                user,
                {"Asks for steps": STEPS, "Asks for examples": EXAMPLES, "Asks for reasons": REASONS},
            ),
            problem_solving=_matching_signs(user, {"Tries alone first": TRIED}),
            decision_making=_matching_signs(user, {"Decides": DECIDED, "Hesitates": HESITATES}),
        ),
        interaction_insights=InteractionInsights(friction_points=_quotes(user, COMPLAINT, 1)),
        future_guidance=FutureGuidance(
            recommended_approaches=_matching_sentences(user, LIKES, unlike=DISLIKES)[:3],
            avoid_approaches=_matching_sentences(user, DISLIKES)[:2],
        ),
    )


def _count_messages(messages: Sequence[SynthesisMessage]) -> str:
    roles = [message.role for message in messages]
    counts = ", ".join(f"{roles.count(role)} of {role}" for role in dict.fromkeys(roles))
    return f"{len(roles)} messages: {counts}."


def _intent(user: Sequence[ConversationSentence]) -> str:
    stated = [each for each in user if not is_courtesy(each.text)]
    wishes = [each for each in stated if each.is_question or REQUEST.search(each.text)]
    return _quote((wishes or stated)[0]) if stated else ""


def _worked(sentences: Sequence[ConversationSentence]) -> tuple[str, ...]:
    """Return answers after which the user says that it works."""
    happy = (each for each in sentences if each.role == "user" and WORKED.search(each.text))
    return tuple(
        dict.fromkeys(
            _answers_before(sentences, each) or _quote(each) for each in happy if not FAILED.search(each.text)
        )
    )


def _failed(sentences: Sequence[ConversationSentence]) -> tuple[str, ...]:
    """Return answers after which the user says that it does not."""
    unhappy = (each for each in sentences if each.role == "user" and FAILED.search(each.text))
    return tuple(dict.fromkeys(filter(None, (_answers_before(sentences, each) for each in unhappy))))


def _answers_before(sentences: Sequence[ConversationSentence], each: ConversationSentence) -> str:
    """Return the last answer before it, with what the user says then; empty if there were only courtesies."""
    for one in reversed(sentences):
        if one.role == "assistant" and one.place < each.place:
            answer = [other for other in sentences if other.place == one.place]
            tried = [other for other in answer if not is_courtesy(other.text) and not PROMISE.search(other.text)]
            return f"{_quote(tried[0])} -> {_quote(each)}" if tried else ""
    return ""


def _errors(user: Sequence[ConversationSentence]) -> str:
    count = sum(bool(ERROR.search(each.text)) for each in user)
    return f"Errors are mentioned in {count} sentences." if count > 1 else ""


def _pace(messages: Sequence[SynthesisMessage]) -> str:
    lengths = [_length(message.content) for message in messages if message.role == "user"]
    if len(lengths) < _ENOUGH_MESSAGES:
        return ""
    mean = round(sum(lengths) / len(lengths))
    if _FEW_WORDS < mean < _MANY_WORDS:
        return ""
    return f"Writes {'briefly' if mean <= _FEW_WORDS else 'at length'}: {mean} words a message in {len(lengths)}."


def _length(text: str) -> int:
    """Return words; in scripts without blanks, two characters count as one."""
    return max(len(text.split()), len("".join(text.split())) // 8)


def _matching_signs(user: Sequence[ConversationSentence], signs: dict[str, re.Pattern[str]]) -> str:
    return " ".join(f"{sign}: {quote}" for sign, pattern in signs.items() if (quote := _quotes(user, pattern, 1)))


def _quotes(user: Sequence[ConversationSentence], pattern: re.Pattern[str], most: int) -> str:
    return " ".join(_matching_sentences(user, pattern)[:most])


def _matching_sentences(
    user: Sequence[ConversationSentence], pattern: re.Pattern[str], *, unlike: re.Pattern[str] | None = None
) -> tuple[str, ...]:
    found = (each for each in user if pattern.search(each.text) and not (unlike and unlike.search(each.text)))
    return tuple(dict.fromkeys(_quote(each) for each in found))


def _quote(each: ConversationSentence) -> str:
    if len(each.text) <= _LONGEST_QUOTE:
        return each.text
    head = each.text[: _LONGEST_QUOTE - 1]
    return f"{head.rpartition(' ')[0] or head}…"


# -- the summary ---------------------------------------------------------------------------------


MOST_CHARACTERS = 8_000
"""Most characters of a narrative. Beyond it the oldest sentences with facts stay; the messages are stored anyway."""
_FAST_CHARACTERS = 2_000
_TAGS, _KEYWORDS, _QUERIES, _FOLLOW_UPS = 8, 10, 4, 2
_LONGEST_QUERY = 200
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\u0e01-\u0e3a\u0e40-\u0e4e"
_TERM = re.compile(
    r"[\u4e00-\u9fff\u3005]+|[\u30a1-\u30fa\u30fc]+|[\uac00-\ud7a3]+|\d[\d.,:/-]*\d"
    rf"|[^\W_{_DENSE}](?:(?:[^\W{_DENSE}]|['\u2019.-])*[^\W_{_DENSE}])?"
)
_HAN = re.compile(r"[\u4e00-\u9fff\u3005]")
# Short words of Chinese, at which a run of ideographs can be split.
_SMALL = re.compile("[的是我你您他她它了在和也有不就都而及与着或这那个吗呢吧啊们一会好]")
_LONGEST_RUN = 3
_LONGEST_WORD = 60
_REFERENCE, _NUMBER = re.compile(r"\d"), re.compile(r"[\d\W]+")


def summarize_messages(messages: Sequence[SynthesisMessage]) -> SummaryOutput:
    """Return the whole summary: narrative, tags, keywords, questions it answers, open points."""
    sentences = conversation_sentences(messages)
    spoken = sum(message.role != "system" for message in messages)
    found = frequent_terms([each.text for each in sentences])
    questions = [each.text[:_LONGEST_QUERY] for each in sentences if each.is_question and each.role == "user"]
    return SummaryOutput(
        context=SummaryContext(
            available_data=f"{spoken} messages with {len(sentences)} sentences.",
            content_scope=", ".join(found[:_TAGS]),
        ),
        narrative=narrative(sentences),
        retrieval=SummaryRetrieval(
            tags=tuple(word.casefold() for word in found if not _NUMBER.fullmatch(word))[:_TAGS],
            keywords=_keywords(sentences, found),
            queries=tuple(dict.fromkeys([*questions, " ".join(found[:4])]))[:_QUERIES] if found else (),
        ),
        metadata=SummaryMetadata(
            depth=_depth(sentences), complexity=rate_complexity(messages), follow_ups=_follow_ups(sentences)
        ),
    )


def fast_summary(messages: Sequence[SynthesisMessage]) -> str:
    """Return only the narrative, in 2,000 characters or a little more."""
    return narrative(conversation_sentences(messages), characters=_FAST_CHARACTERS)


def narrative(sentences: Sequence[ConversationSentence], *, characters: int = MOST_CHARACTERS) -> str:
    """Return the sentences to keep, a line for each turn, after its speaker.

    Args:
        sentences: sentences of the conversation, oldest first.
        characters: about how long it may be; a longer first sentence is kept all the same.
    """
    worth = [each for each in _distinct(sentences) if not is_courtesy(each.text)] or _distinct(sentences)
    central = set(summarize([each.text for each in worth]).splitlines())
    needed = {each for each in worth if each.role == "user" or carries_facts(each.text)}
    wanted = [each for each in worth if each in needed or each.text in central]
    kept: set[ConversationSentence] = set()
    # Sentences that are only central come last, and questions after statements.
    for each in sorted(wanted, key=lambda one: (one not in needed, one.is_question, one.place)):
        if characters > len(each.text) or not kept:
            kept.add(each)
            characters -= len(each.text) + 1
    turns = groupby((each for each in worth if each in kept), key=lambda each: (each.place, each.speaker))
    return "\n".join(f"{speaker}: {' '.join(one.text for one in turn)}" for (_, speaker), turn in turns)


def frequent_terms(texts: Iterable[str]) -> list[str]:
    """Return the words that characterise texts, the most frequent first, in the spelling of their first use.

    Words of one stem count as one. Ideographs are written without blanks: runs of up to three are a word, longer ones
    give their overlapping pairs.
    """
    counts: Counter[str] = Counter()
    written: dict[str, str] = {}
    for word in (word for text in texts for word in _words(text)):
        stem = query_terms(word)
        if stem and not _is_empty_word(word):
            counts[stem[0]] += 1
            written.setdefault(stem[0], word)
    return [written[stem] for stem, _ in counts.most_common()]


def _words(text: str) -> Iterable[str]:
    for found in _TERM.findall(text):
        if not _HAN.match(found):
            yield found
            continue
        for run in _SMALL.split(found):
            pairs = (run[place : place + 2] for place in range(len(run) - 1))
            yield from pairs if len(run) > _LONGEST_RUN else (run,)


def _is_empty_word(word: str) -> bool:
    folded = word.casefold()
    return (
        not 2 <= len(word) <= _LONGEST_WORD
        or folded in EMPTY_WORDS
        or folded.replace("\u2019", "'").split("'")[0] in STOP_WORDS
    )


def _keywords(sentences: Sequence[ConversationSentence], found: Sequence[str]) -> tuple[str, ...]:
    """Return the keywords: names and numbers first, since searches contain them."""
    inside = {word for each in sentences for word in _words(each.text.partition(" ")[2])}
    exact = [word for word in found if _REFERENCE.search(word) or (word in inside and word[:1].isupper())]
    return tuple(dict.fromkeys([*exact, *found]))[:_KEYWORDS]


def _depth(sentences: Sequence[ConversationSentence]) -> Depth | None:
    if not sentences:
        return None
    numbers = sum(has_numbers(each.text) for each in sentences)
    if len(sentences) >= 12 or numbers >= 6:
        return "high"
    return "medium" if len(sentences) >= 4 or numbers >= 2 else "low"


def _follow_ups(sentences: Sequence[ConversationSentence]) -> tuple[str, ...]:
    """Return the latest promises, and questions after which no other role has spoken."""
    roles = {each.role for each in sentences}
    last = {role: max(each.place for each in sentences if each.role == role) for role in roles}

    def is_open(each: ConversationSentence) -> bool:
        return each.is_question and all(place < each.place for role, place in last.items() if role != each.role)

    def is_promise(each: ConversationSentence) -> bool:
        return bool(PROMISE.search(each.text)) and not DECIDED.search(each.text)

    found = [each.text for each in sentences if not is_courtesy(each.text) and (is_open(each) or is_promise(each))]
    return tuple(dict.fromkeys(found))[-_FOLLOW_UPS:]


def _distinct(sentences: Sequence[ConversationSentence]) -> list[ConversationSentence]:
    first: dict[tuple[str, str], ConversationSentence] = {}
    for each in sentences:
        first.setdefault((each.speaker, each.text.casefold()), each)
    return list(first.values())


# -- the complexity ------------------------------------------------------------------------------


_MANY_MESSAGES, _MANY_SENTENCES, _MANY_FACTS, _MANY_QUESTIONS = 6, 12, 6, 2


def rate_complexity(messages: Sequence[SynthesisMessage]) -> int:
    """Return 1, and one more for each: 6 messages, 12 sentences, 6 sentences with facts, 2 questions; or more of them.

    Instructions of the system do not count; facts are those of `carries_facts`.
    """
    sentences = conversation_sentences(messages)
    reached = (
        sum(message.role != "system" for message in messages) >= _MANY_MESSAGES,
        len(sentences) >= _MANY_SENTENCES,
        _are_so_many((carries_facts(each.text) for each in sentences), _MANY_FACTS),
        _are_so_many((each.is_question for each in sentences), _MANY_QUESTIONS),
    )
    return 1 + sum(reached)


def _are_so_many(truths: Iterable[bool], number: int) -> bool:
    """Return whether so many are true; the rest is not computed."""
    return sum(islice(filter(None, truths), number)) == number


# -- sentences of a conversation -----------------------------------------------------------------


_DIGIT_OR_SIGN = re.compile(r"[\d@€$£¥%]|\w://|[\"“„«「『`].{1,200}[\"”“»」』`]")
_NAME = re.compile(r"(?<=[^.!?:\s]\s)[\"'“„(]?[^\W\d_]*[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]|\b[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]{2,}|[a-zß-öø-ÿ][A-Z]")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"\w+")
_LONGEST_COURTESY = 80
# A text without an end of sentence within a thousand characters is a log or a dump: it is split at the next blank.
_PIECE = re.compile(r"\S.{0,998}\S(?=\s|$)|\S{1,1000}")


class ConversationSentence(NamedTuple):
    """A sentence of a conversation."""

    place: int
    """Position of its message."""
    role: str
    speaker: str
    text: str

    @property
    def is_question(self) -> bool:
        """Whether it is a question."""
        return bool(QUESTION.search(self.text))


def conversation_sentences(messages: Sequence[SynthesisMessage]) -> list[ConversationSentence]:
    """Return the whole sentences of a conversation in order; system instructions are not part of it."""
    spoken = [(place, message) for place, message in enumerate(messages) if message.role != "system"]
    return [
        ConversationSentence(place, message.role, _speaker_name(message), text)
        for place, message in spoken or list(enumerate(messages))
        for sentence in split_sentences(message.content)
        for text in _PIECE.findall(sentence)
    ]


def is_courtesy(text: str) -> bool:
    """Return whether it is only a greeting, thanks, agreement or an offer of help."""
    if len(text) > _LONGEST_COURTESY or has_numbers(text) or not COURTESY.search(text):
        return False
    if any(sign.search(text) for sign in (WORKED, FAILED, PROMISE, _NAME)):
        return False
    return not _content_words(COURTESY.sub(" ", text))


def has_numbers(text: str) -> bool:
    """Return whether it contains a number, an amount, an address or a quotation."""
    return bool(_DIGIT_OR_SIGN.search(text))


def carries_facts(text: str) -> bool:
    """Return whether it contains a number, an address, a name, a quotation or a preference.

    In scripts without capitals, names cannot be distinguished from other words: there every sentence counts.
    """
    if has_numbers(text) or _NAME.search(text):
        return True
    if LIKES.search(text) or DISLIKES.search(text):
        return True
    if text.isascii():
        return False
    letters = "".join(_LETTER.findall(text))
    return bool(letters) and letters.upper() == letters.lower()


def _speaker_name(message: SynthesisMessage) -> str:
    return " ".join((message.name or "").split()) or message.role.capitalize()


def _content_words(text: str) -> list[str]:
    """Return the meaningful words."""
    found = (word.casefold() for word in _WORD.findall(text))
    return [word for word in found if word not in EMPTY_WORDS and word not in STOP_WORDS]


# -- words and patterns --------------------------------------------------------------------------


def _any_of(*forms: str) -> re.Pattern[str]:
    forms = tuple(form.replace("'", "['\u2019]") for form in forms)
    # Word boundaries have no meaning in scripts without blanks.
    spaced = [form for form in forms if form[0].isascii() or "\u00c0" <= form[0] < "\u0400"]
    dense = [form for form in forms if form not in spaced]
    parts = [rf"\b(?:{'|'.join(spaced)})"] if spaced else []
    return re.compile("|".join([*parts, *dense]), re.IGNORECASE)


QUESTION = re.compile(r"[?\uff1f\u061f]\s*[\"'”»)\]]*$")
REQUEST = _any_of(
    r"(?:can|could|would|will) you\b", r"please\b", r"I(?: would|'d)? (?:need|want|like to)\b", r"help me\b",
    r"(?:kannst|können|könnten) (?:du|sie)\b", r"bitte\b", r"ich (?:brauche|möchte|will)\b",
    r"je (?:veux|voudrais)\b", r"(?:quiero|necesito)\b", "したい", "ほしい", "ください", "أريد", "أحتاج", "من فضلك",
    "请", "我想",
)  # fmt: skip
COURTESY = _any_of(
    r"(?:thanks|thank you|thx|hello|hi|hey|dear|good (?:morning|day|evening)|bye|goodbye|cheers|sorry to hear)\b",
    r"(?:ok|okay|sure|noted|got it|understood|great|perfect|you're welcome|glad|happy to|my pleasure|no problem)\b",
    r"(?:any|some)thing else\b", r"any (?:other|more|further) questions?\b", r"for (?:your|the|telling)\b",
    r"(?:danke|vielen dank|hallo|guten (?:tag|morgen|abend)|gern|alles klar|tschüss|servus|noch (?:fragen|etwas))\b",
    r"(?:merci|bonjour|salut|gracias|hola|de nada)\b", "ありがとうございま(?:す|した)", "ありがとう", "こんにちは",
    "かしこまりました", "承知(?:しました|いたしました)", "شكرا",
    "مرحبا", "حسنا", "هل تريد شيئا آخر", "شيئا آخر", "谢谢", "你好",
)  # fmt: skip
WORKED = _any_of(
    r"(?:it|that|this|everything) (?:now |finally )?(?:works|worked|helped|fixed|solved|did the trick)\b",
    r"(?:works|working) (?:now|again|fine|perfectly)\b", r"(?:problem|issue) (?:is )?(?:solved|fixed|gone)\b",
    r"(?:hat|das hat) (?:geklappt|geholfen|funktioniert)\b", r"funktioniert (?:jetzt|wieder)\b",
    r"(?:ça|cela) (?:marche|fonctionne)\b", r"(?:ya|ahora) funciona\b", "動きました", "解決しました",
    "うまくいきました", "直りました", "نجح", "يعمل الآن", "解决了",
)  # fmt: skip
FAILED = _any_of(
    r"(?:did|does|do|is|was|are)(?: not|n't) (?:work|working|help|helping|fix|solve)\b", r"not working\b",
    r"no luck\b", r"still (?:not|fails?|failing|broken|the same|get|getting|have|crash)\w*",
    r"(?:funktioniert|geht|klappt|hilft) (?:immer noch |leider |so )?nicht\b",
    r"nicht (?:geklappt|geholfen|funktioniert)\b", r"ne (?:marche|fonctionne) pas\b", r"no funciona\b",
    "動きません", "動かない", "解決しません", "うまくいきません", "できません", "لا يعمل", "لم ينجح", "لم يعمل",
    "不行",
)  # fmt: skip
ERROR = _any_of(
    r"(?:error|exception|traceback|crash(?:es|ed)?|failure|timeout)\b", r"(?:fehler|absturz)\w*", r"erreur\b",
    "エラー", "不具合", "خطأ", "错误",
)  # fmt: skip
COMPLAINT = _any_of(
    r"(?:frustrat|annoy|disappoint|unaccept|ridicul)\w+", r"waste of time\b", r"(?:second|third|fourth) time\b",
    r"fed up\b", r"confus\w+", r"(?:do not|don't) understand\b", r"unclear\b", r"(?:ärger|frustrier|enttäusch)\w+",
    r"zum (?:zweiten|dritten) mal\b", r"unklar\b", r"verstehe (?:das |es )?nicht\b", "困り", "ひどい", "残念",
    "わかりません", "分かりません", "محبط", "مزعج", "لا أفهم",
)  # fmt: skip
LIKES = _any_of(
    r"(?:I|we|he|she|they)(?:'d| would)?(?: really| much| now| always| usually)? (?:prefers?|likes?|loves?|enjoys?)\b",
    r"(?:my|our|his|her) favou?rite\b", r"please always\b", r"(?:ich|wir) (?:bevorzuge|mag|mögen|liebe)\w*",
    r"am liebsten\b", r"lieber\b", r"je préfère\b", r"prefiero\b", "好き", "方がいい", "أفضل", "أحب", "喜欢",
)  # fmt: skip
DISLIKES = _any_of(
    r"(?:I|we|he|she|they)(?: really)? (?:hates?|dislikes?|(?:do|does)(?: not|n't) (?:like|want))\b",
    r"please (?:never|do not|don't|stop)\b", r"I(?:'m| am) allergic\b",
    r"(?:hasse|mag (?:das |es )?nicht|bitte nicht|bitte kein)\w*", "嫌い", "やめてください", "أكره", "لا أحب",
    "不喜欢",
)  # fmt: skip
STEPS = _any_of(
    r"step[- ]by[- ]step\b", r"walk me through\b", r"one (?:step|thing) at a time\b", r"schritt für schritt\b",
    r"étape par étape\b", r"paso a paso\b", "手順", "一つずつ", "خطوة بخطوة", "一步一步",
)  # fmt: skip
EXAMPLES = _any_of(
    r"(?:an|some|another|for) examples?\b", r"show me\b", r"(?:ein|zum) beispiel\b", r"par exemple\b",
    r"un ejemplo\b", "例を", "例え", "مثال", "例子",
)  # fmt: skip
REASONS = _any_of(
    r"why\b", r"explain\b", r"how (?:does|do|come)\b", r"(?:warum|wieso|erklär\w*)\b", r"pourquoi\b", r"por qué\b",
    "なぜ", "どうして", "説明", "لماذا", "اشرح", "为什么",
)  # fmt: skip
BRIEF = _any_of(
    r"(?:keep it |be |in )(?:short|brief|concise)\b", r"tl;?dr\b", r"kurz (?:und|bitte|gesagt|fassen)\b",
    r"bitte kurz\b", "手短", "簡潔", "باختصار", "简短",
)  # fmt: skip
DETAILED = _any_of(
    r"(?:in|more|every|all the) details?\b", r"be thorough\b", r"(?:ausführlich|im detail)\w*", r"en détail\b",
    "詳しく", "بالتفصيل", "详细",
)  # fmt: skip
DECIDED = _any_of(
    r"I'?(?:ll| will| have|ve)? (?:take|go with|choose|chose|decided|keep)\b", r"let's (?:go|do|take|use)\b",
    r"go ahead\b", r"(?:ich nehme|ich habe mich entschieden|dann machen wir)\b", "にします", "決めました", "قررت",
    "سآخذ", "决定",
)  # fmt: skip
HESITATES = _any_of(
    r"not (?:quite |really )?sure\b", r"(?:let me|need to) think\b", r"torn between\b",
    r"(?:nicht sicher|überlege|unsicher)\b", "迷って", "考えさせて", "لست متأكد", "不确定",
)  # fmt: skip
TRIED = _any_of(
    r"I(?:'ve| have)?(?: already| also)? (?:tried|checked|restarted|reinstalled|rebooted|googled|tested)\b",
    r"(?:schon|bereits) (?:versucht|probiert|neu gestartet)\b",
    r"habe .{1,40} (?:versucht|probiert|neu gestartet)\b", "試しました", "試してみ", "再起動し", "جربت", "حاولت",
    "试过",
)  # fmt: skip
PROMISE = _any_of(
    r"(?:I|we)(?:'ll| will)\b", r"(?:I|we) (?:am|are) going to\b", r"let (?:me|us) know\b",
    r"(?:get|be) back to you\b", r"follow(?:ing)? up\b",
    r"(?:ich werde|wir werden|ich melde mich|wir melden uns|sag(?:en sie)? bescheid)\b",
    r"(?:je vais|nous allons|tenez-moi)\b", "後ほど", "お知らせ", "ご連絡", "سأ", "سوف", "我会",
)  # fmt: skip
REPLACES = _any_of(
    r"no longer\b", r"any ?more\b", r"instead of\b", r"rather than\b", r"cancel\w*", r"called off\b",
    r"nicht mehr\b", r"(?:statt|anstelle|anstatt)\b", r"(?:storniert|gekündigt|abgesagt|widerrufen)\b",
    r"au lieu de\b", r"annulé\w*", r"ya no\b", r"cancelad\w*", r"en lugar de\b", "キャンセル", "解約", "取り消",
    "もう.{1,20}(?:ない|ません)", "لم أعد", "لم يعد", "ألغ", "بدلا من", "بدلاً من", "不再", "取消",
)  # fmt: skip

# Words without information about a subject; English stop words of the search are left out anyway.
_EMPTY = """
please thank thanks thx hello hi hey okay ok yes yeah well also like want need know think get got going go let
make sure would could really still now today back help user assistant good great right new one two ich du er sie
es wir ihr mich dich mir dir uns euch ihnen der die das den dem des ein eine einen einem einer eines und oder
aber nicht kein keine ist sind war waren bin bist hat habe haben hatte wird werden wurde mit von zu zum zur auf
für aus bei nach über unter vor seit wenn dass daß weil wie was wer wo wann auch noch nur schon sehr bitte danke
hallo mein meine meinen meiner dein deine ihre ihren ihr sein seine im am um als so doch mal kann können könnte
möchte man jetzt hier le la les un une des du de et ou mais ne pas que qui est sont je tu il elle nous vous mon
ma mes pour dans avec sur au aux el los las una unos del y o pero no es son yo me mi mis para con por se su en
lo al في من على إلى عن مع هذا هذه ذلك التي الذي ما لا لم لن هل أن إن كان كانت هو هي أنا نحن أنت لي لك له لها و
أو ثم قد كل يا بعد قبل عند أي كم كيف متى أين لماذا شكرا مرحبا الآن
"""
EMPTY_WORDS = frozenset(_EMPTY.split())

"""Patterns for questions, requests, thanks and preferences in a few languages; incomplete."""

from __future__ import annotations

import re


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

"""The words by which a question is known, and those by which it speaks of the user's own matters. Tables alone, one row
for each of the languages that people write to models in most. What begins in none of them is no question to us.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from providers.text.patterns import pattern


class Language(NamedTuple):
    """`asking`: what a question begins with, in two words where one is not enough; `inverted`: verbs that begin one,
    and other sentences as well. Forms of "can you" are missing on purpose: what follows them is a task. `persons`: who
    speaks and to whom; `pointing`: at a text beside the question; `possessive`: whose people and things."""

    asking: frozenset[str]
    inverted: frozenset[str]
    persons: frozenset[str]
    pointing: frozenset[str]
    possessive: frozenset[str]

    @property
    def own(self) -> frozenset[str]:
        return self.persons | self.pointing | self.possessive


def _language(asking: str, inverted: str, persons: str, pointing: str, possessive: str) -> Language:
    """Words apart by blanks; `_` stands between the two of a phrase."""
    return Language(*(_words(listed) for listed in (asking, inverted, persons, pointing, possessive)))


def _words(listed: str) -> frozenset[str]:
    return frozenset(word.replace("_", " ") for word in listed.split())


LANGUAGES = (
    _language(  # English
        "who whom whose what when where why which how",
        "is are was were do does did has have can will should",
        "i me we us you your yours u",
        "this these those following above below here",
        "my mine our ours",
    ),
    _language(  # German
        "wer wem wen wessen was wann wo wohin woher warum wieso weshalb wie welche welcher welches welchen",
        "ist sind war waren hat gibt kann darf muss wird",
        "ich mir mich wir uns du dir dich dein deine deinen deinem euch euer eure",
        "dies diese dieser dieses diesen diesem hier folgende folgenden",
        "mein meine meinen meinem meiner meines unser unsere unserem unseren",
    ),
    _language(  # French
        "qui que quoi quand où pourquoi comment combien quel quelle quels quelles lequel laquelle est-ce qu'est-ce "
        "y_a-t-il",
        "",
        "je j m me moi nous tu te toi ton ta tes vous votre vos",
        "cet cette ces ceci ci-dessous suivant suivante",
        "mon ma mes notre nos",
    ),
    _language(  # Spanish
        "qué quién quiénes cuál cuáles cuándo dónde adónde cómo cuánto cuánta cuántos cuántas quien cual cuales cuando "
        "donde cuanto cuanta cuantos cuantas por_qué por_que",
        "es son hay",
        "yo me mí conmigo nosotros nos tú tu tus te ti usted ustedes le",
        "este esta estos estas esto siguiente siguientes",
        "mi mis nuestro nuestra nuestros nuestras",
    ),
    _language(  # Russian
        "кто кого что чего когда где куда откуда почему зачем как какой какая какое какие сколько чей правда_ли",
        "",
        "я мне меня мной мы нам нас ты тебя тебе тобой твой твоя вы вас вам ваш ваша",
        "это этот эта эти этой этого следующий следующие",
        "мой моя моё мое мои моего моей моему мою моих моим наш наша наше наши нашего",
    ),
    _language(  # Arabic; most of these words are endings there, see below
        "ماذا متى أين لماذا كيف كم هل",
        "ما من أي",
        "أنا أنت أنتم نحن لي حالك",
        "هذا هذه التالي التالية",
        "زوجي زوجتي أمي أبي",
    ),
    _language(  # Italian
        "chi cosa quando dove perché come quale quali quanto quanti quanta quante",
        "",
        "io me mi noi ci tu te ti tuo tua voi vi",
        "questo questa questi queste seguente",
        "mio mia miei mie nostro nostra nostri",
    ),
    _language(  # Portuguese
        "quem qual quais onde porquê quando quanto quantos quantas como",
        "",
        "eu me mim nós nos você vocês te teu tua",
        "este esta isto esse essa isso seguinte",
        "meu minha meus minhas nosso nossa",
    ),
    _language(  # Dutch
        "wie wat wanneer waar waarom hoe welke welk hoeveel",
        "is zijn",
        "ik me mij wij we jij je jou jouw u uw",
        "deze dit volgende hier",
        "mijn ons onze",
    ),
)
OWN = frozenset[str]().union(*(language.own for language in LANGUAGES))
POSSESSIVE = frozenset[str]().union(*(language.possessive for language in LANGUAGES))

# Scripts without blanks ask anywhere in the sentence, if a mark says so; without one at its end.
_ASKING_UNSPACED = (
    r"(?:谁|誰|什么|什麼|甚麼|哪|几|幾|多少|多[高长長大久远遠重深快]|为什么|為什麼|怎么|怎麼|怎样|如何|何时|吗|嗎"
    r"|何|いつ|どこ|なぜ|どうして|どう|いくら|いくつ|どれ|どの|どちら)"
)
ASKING_UNSPACED = pattern(rf"{_ASKING_UNSPACED}.{{0,60}}[?？]|は[?？]|か[?？]?$|{_ASKING_UNSPACED}[\u3040-\u9fff]?$")
# Such words where they are endings, or stand without blanks around them; people of one's own among them.
OWN_UNSPACED = pattern(
    r"我|你|您|咱|这|這|下面|以下|上面|老公|老婆|妈妈|爸爸|老板|老闆"
    r"|私|僕|俺|あなた|この|これ|母|父|夫|妻|上司|上記|彼氏|彼女"
    r"|(?<!\w)(?!ال)\w+ني(?!\w)|(?<!\w)(?:أخي|أختي|مديري|صديقي|صديقتي|عملي)(?!\w)"
)
# "How do I …" asks for what holds for everybody, "this year" points at no text, and a copper mine is nobody's.
ANYBODY = pattern(
    r"\b(?:how|when|where) (?:do|can|could|must) i\b"
    r"|\b(?:coal|copper|diamond|gold|iron|lithium|salt|silver|tin|uranium)[ -]mine\b"
    r"|\bth(?:is|ese) (?:year|month|week|season|century|decade|days)\b"
    r"|\bdiese[snr]? (?:jahr|monat|woche|saison)\b|\bcette (?:année|semaine|saison)\b"
    r"|\best[ea] (?:año|mes|semana|temporada)\b|\bэт(?:ом|ой|от) (?:году|месяце|неделе|год)\b",
    re.IGNORECASE,
)
# And "can you tell me" asks the same as without it; "what do I need" is nobody's secret.
COURTESY = pattern(
    r"\b(?:can|could|would|will) you (?:please )?(?:tell|show|give) (?:me|us)\b|\b(?:tell|show|give) (?:me|us)\b"
    r"|\bi (?:would like|want|need) to know\b|\bi wonder\b|\bnear me\b"
    r"|\b(?:do|can|must|should) i (?:need|get|use|apply|renew|install)\b"
    r"|\b(?:kannst du|können sie|könntest du) (?:mir )?(?:bitte )?(?:sagen|zeigen)\b|\bsag mir\b"
    r"|\b(?:peux|pourrais)-tu me dire\b|\b(?:pouvez|pourriez)-vous me dire\b|\bdis-moi\b"
    r"|\b(?:puedes|podrías) decirme\b|\bdime\b|\bможе(?:шь|те) сказать\b|\bскажи(?:те)?\b"
    r"|(?:你|您)?能?告诉我|请问",
    re.IGNORECASE,
)


def own_of(languages: Sequence[Language]) -> frozenset[str]:
    """The words by which a sentence of these languages speaks of the user's own matters; of a sentence whose language
    is not known, those of all."""
    return frozenset[str]().union(*(one.own for one in languages)) if languages else OWN

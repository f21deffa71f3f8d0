"""The words that ask for work on a text, or that letters begin and end with: what stands beside them is that text.
Tables alone. A word too few here lets a text leave that was only pasted; a word too many costs a search.
"""

from __future__ import annotations

import re

from providers.text.patterns import pattern

# `*` stands for any ending, `_` for a blank. These anywhere in a sentence:
_ANYWHERE = (
    # English
    "translat* summari* summary rewrit* rephras* reword* paraphras* proofread* anonymi* redact* polite* grammar spell "
    "spelled spelling misspel* rhyme* transcript make_it make_this make_that say_it say_in say_this put_it put_this "
    "regards sincerely in_english in_german in_french in_spanish in_italian in_russian in_chinese in_japanese "
    # German
    "übersetz* fasse_zusammen zusammenfass* formulier* umformulier* korrigier* höflich* freundlicher geehrte* grüße "
    "gruß auf_englisch auf_deutsch auf_französisch auf_spanisch "
    # French
    "traduis* traduire traduction résum* corrige corriger rédig* reformul* poli polie poliment cordialement en_anglais "
    "en_français en_allemand en_espagnol "
    # Spanish
    "traduc* traduzca resumen resumir corrige corregir redacta* reescrib* estimad* saludos en_inglés al_inglés "
    "al_español "
    # Russian and Ukrainian
    "перевед* перевести перескаж* исправ* перепиши* вежлив* уважаем* по-английски переклад* виправ* "
    # Arabic
    "ترجم* لخص* صحح* عزيزي عزيزتي بالإنجليزية "
    # Italian, Portuguese, Dutch
    "traduci tradurre riassum* correggi* riscriv* in_inglese traduz* resuma corrija reescrev* prezad* em_inglês "
    "vertaal* samenvat* herschrijf* geachte in_het_engels "
    # Polish, Czech, Swedish, Turkish, Vietnamese, Indonesian, Hindi
    "streść* przetłumacz* napisz* popraw* přelož* shrň* oprav* översätt* sammanfatta* çevir* özetle* düzelt* dịch "
    "tóm_tắt terjemah* ringkas* perbaiki* अनुवाद सारांश लिखो लिखें लिखिए"
)
# And these where a sentence begins with them, or a politeness and they: elsewhere people ask about them.
_ORDERS = (
    "fix correct improve edit polish shorten reply respond draft compose write extract classify sort email "
    "e-mail mail dear explain_this "
    "fasse schreib schreibe verbessere verbesser kürze lieber_herr liebe_frau liebe lieber "
    "écris écrivez cher chère chers escribe resume querido querida "
    "напиши напишите дорогой дорогая дорогие اكتب أكتب "
    "scrivi caro cara gentile escreva verbeter schrijf vat beste "
    "drogi droga napiš skriv rätta yaz viết sửa tulis"
)
_UNSPACED = (
    "翻译 翻譯 译成 譯成 总结 總結 概括 润色 潤飾 改写 改寫 修改 纠正 写信 写一封 写邮件 寫信 提取 亲爱的 尊敬的 礼貌 "
    "语法 語法 訳し 英訳 和訳 翻訳 要約 まとめて 添削 書き直 書いて 直して 抜き出 丁寧 拝啓 "
    "번역 요약 고쳐 써줘 써주 작성 교정 แปล สรุป เขียน"
)
_POLITE = r"(?:please|pls|bitte|can (?:you|u)|could you|kannst du|peux-tu|puedes|s'il te plaît|por favor|пожалуйста)"


def _any_of(listed: str) -> str:
    words = (re.escape(word).replace(r"\*", r"\w*").replace("_", r"\s+") for word in listed.split())
    return rf"(?:{'|'.join(words)})(?![^\W_])"


TASK = pattern(
    rf"(?<![^\W_]){_any_of(_ANYWHERE)}"
    rf"|(?:^|[.!?…:؟¿]\s*)(?:{_POLITE}\W+)?{_any_of(_ORDERS)}"
    rf"|(?:^|[.!?…:]\s*)(?:{_POLITE}\W+)?(?:tell|ask|call|inform|message)\s+(?!me\b|us\b|about\b)"
    rf"|{'|'.join(_UNSPACED.split())}",
    re.IGNORECASE,
)
# What asks for something to be looked up though it is no question.
LOOK_UP = pattern(
    r"^\W*(?:please\s+|hey\s+|hi\s+)?(?:tell me|show me|give me|find|search|look up|look for|google|list|compare"
    r"|i (?:would like|want|need) to know|i wonder)\b"
    r"|^\W*(?:bitte\s+)?(?:such|suche|finde|zeig|zeige|sag mir|nenne|vergleiche)\b"
    r"|^\W*(?:cherche|trouve|dis-moi|donne-moi|montre-moi|compare)\b|^\W*(?:busca|encuentra|dime|muéstrame|compara)\b"
    r"|^\W*(?:найди|покажи|скажи|сравни)\b|^\W*(?:ابحث|أخبرني|قارن)(?!\w)|^\W*(?:查|搜索|搜|找|告诉我)|(?:教えて|調べて)",
    re.IGNORECASE,
)
# All that may stand beside a question: a greeting, thanks, and how to answer. Whatever else does may be an order to do
# something with the question, in words that no table has.
_GREETINGS = (
    "hi hello hey hallo guten servus moin bonjour salut hola buenas buenos привет здравствуйте مرحبا السلام ciao "
    "buongiorno olá oi hoi dag thanks thank_you quick_question danke merci gracias спасибо شكرا grazie obrigado "
    "obrigada bedankt briefly be_brief keep_it_short short_answer in_one_sentence kurz brièvement кратко"
)
BESIDE = pattern(
    rf"\W*(?:{_POLITE}\W+)?(?:{_any_of(_GREETINGS)}(?:\W+\w+)?\W*$"
    r"|(?:answer|respond|reply|antworte|antworten|réponds|répondez|responde|responda|ответь|ответьте|أجب|rispondi|antwoord)"
    r"(?=\W*$|\s+(?:in|with|briefly|shortly|only|please|using|kurz|bitte|auf|en|em|brièvement|brevemente|кратко|коротко)\b)"
    r"|(?:search|look)(?:\s+(?:it|this|that))?\s+(?:the\s+(?:web|internet)|online|up|it\s+up)(?:\s+please)?\W*$"
    r"|你好|您好|谢谢|謝謝|请回答|请简|こんにちは|ありがとう|簡単に)",
    re.IGNORECASE,
)

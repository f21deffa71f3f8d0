"""What people say around a question, as patterns: greetings, thanks, politeness, orders to the model, tasks that need
no search, words that point back. What each of them means for a query is decided in `search_need`, `user_message`,
`question_words` and `query_plan`.
"""

from __future__ import annotations

import re


def _any(*lines: str) -> str:
    """Alternatives, each of them whole words."""
    return f"(?:{'|'.join(lines)})(?!\\w)"


_I = re.IGNORECASE

# Politeness

_HELLO = (
    r"hi+|hello|hey+|hiya|howdy|yo|greetings|good (?:morning|afternoon|evening|day|night)|hallo|moin|servus|grüß gott",
    r"guten (?:morgen|tag|abend)|bonjour|bonsoir|salut|coucou|hola|buen[oa]s (?:d[ií]as|tardes|noches)|ciao|olá",
    r"bom dia|buongiorno|привет|здравствуйте|добрый день|안녕(?:하세요)?|你好吗?|您好|嗨|哈[喽啰]|早上好|下午好|晚上好"
    r"|早安",
    r"こんにちは|おはよう(?:ございます)?|こんばんは|はじめまして",
)
_TALK = (
    r"how are you(?: doing| today| feeling)*|how(?:'s| is) it going|how do you do|what(?:'s| is) up|sup|who are you",
    r"nice to meet you|what(?:'s| is) your name|what can you do|are you (?:there|a bot|an ai|human|real)|wer bist du",
    r"wie geht(?:'s| es dir| es ihnen)|ça va|comment (?:ça va|vas[- ]tu|allez[- ]vous)|qué tal|cómo est[aá]s|你是谁",
    r"there|all|every(?:one|body)|friend|buddy|mate|man|sir|assistant|bot|and|to you|too|my|amigo|tout le monde",
)
_THANKS = (
    r"(?:many )?thanks?(?: you)?(?: (?:so|very) much| a lot| again| for (?:your|the) (?:help|answer)| for that)*|thx"
    r"|ty",
    r"(?:(?:that(?:'s| is| was)|this is|it(?:'s| is)|very|so|really) )?(?:great|perfect|nice|cool|awesome|excellent"
    r"|wonderful|helpful|amazing|brilliant)",
    r"ok(?:ay)?|al(?:l )?right|got it|i see|understood|makes sense|well done|good (?:job|bot)|lol|ha(?:ha)+|wow",
    r"cheers|never ?mind|no problem|you(?:'re| are) welcome|bye(?:[- ]bye)?|good ?bye|see you(?: later| soon"
    r"| tomorrow)?",
    r"have a (?:nice|good|great) (?:day|one|evening|weekend)|that(?:'s| is| was) (?:all|it)|alles klar|super|tschüss",
    r"danke(?: schön| sehr| dir| ihnen)?|vielen dank|auf wiedersehen|merci(?: beaucoup| bien)?|au revoir|d'accord",
    r"(?:muchas )?gracias|adiós|vale|de nada|grazie(?: mille)?|obrigad[oa]|спасибо|пока|감사합니다|고마워|谢谢[你您]?",
    r"多谢|感谢|好的|再见|明白了|ありがとう(?:ございます|ございました)?|どうも|了解(?:です)?|さようなら|わかりました",
)
SMALL_TALK = re.compile(rf"(?:[\W_]*+(?:{_any(*_HELLO, *_TALK)}|({_any(*_THANKS)})))+[\W_]*", _I)
GREETED = re.compile(rf"\W*+{_any(*_HELLO)},? [^\W\d_]+[^\w?]*", _I)  # and by name

_POLITE = (
    f"(?:{'|'.join(_HELLO)})(?: there)?",
    r"please|pls|can u|like i(?:'m| am) (?:five|5)|kindly|now(?= (?:what|who|how|when|where|why))",
    r"(?:so|well|now|ok(?:ay)?|actually|basically|also|sorry|excuse me|thanks|thank you|great|perfect|nice|cool),",
    r"(?:can|could|would|will) you(?: (?:please|kindly|maybe|perhaps))?|would you mind|do you know|let me know",
    r"i(?:'d| would) (?:like|love) (?:you )?to (?:know|ask|find out|learn|understand)|quick question|my question is",
    r"i (?:want|need) (?:you )?to (?:know|find out|learn|understand)|i have a question(?: (?:about|on|regarding))?",
    r"i(?:'m| am| was)? ?(?:just )?(?:wonder(?:ing)?|curious)(?: (?:if|whether|about))?(?: you (?:can|could|know))?",
    r"help me(?: to)?(?: understand| find(?: out)?)?|explain(?: to me)?|describe|show me|remind me|any idea",
    r"tell me(?: (?:(?:everything|something|a bit|a little|all|more)(?: you know)? )?about)?|find(?: out| me)?"
    r"|google for",
    r"search (?:the (?:web|internet)|online|google)(?: for)?|search for|look (?:up|online for)|what do you know about",
    r"give me(?: (?:an? )?(?:short |brief |quick |some |more )*(?:info(?:rmation)?|details|overview)(?: (?:about|on"
    r"|of))?)?",
    r"bitte|(?:kannst|könntest|können|könnten|würdest) (?:du|sie)(?: (?:mir|uns|bitte|mal))*(?: (?:sagen|erklären))?",
    r"(?:sag|erkläre?|sagen sie|erklären sie) (?:mir|uns)(?: bitte)?|ich (?:möchte|will|würde gerne?) wissen|weißt du",
    r"(?:peux|pourrais)-tu|(?:pouvez|pourriez)-vous|me dire|m['’]expliquer|di(?:te)?s-moi|je (?:voudrais|veux) savoir",
    r"s['’]il (?:te|vous) pla[iî]t|puedes|podrías|puede|podría|decirme|explicarme|dime|por favor|quisiera saber",
)
POLITE_START = re.compile(
    rf"[\s,.:;!?¿¡–—-]*+(?:{_any(*_POLITE)}|请问|請問|请|請|(?:你?能不?能?|可以)?(?:告诉|告訴|帮|幫)我(?:查一下|找一下)?"
    r"|你好|您好|我想知道|搜索(?:一下)?|查一下|すみません|こんにちは)[\s,.:;!，、。！–—-]*",
    _I,
)
_POLITE_WORDS = (
    r"please|pls|thanks(?: in advance)?|thank you|thx|bitte|danke|merci|s.il (?:te|vous) pla[iî]t|por favor|gracias"
)
POLITE_END = re.compile(
    rf"(?:(?<![\s,;.!?–—-])[\s,;.!?–—-]++{_any(_POLITE_WORDS)}|(?:を|について|か)?(?:教えて|調べて)(?:ください|下さい|くれますか)?"
    r"|お願いします|，?谢谢|\s*알려\s?(?:줘|주세요))[\s.!?。！？]*\Z",
    _I,
)

# Orders to the model

_TONGUE = (
    r"in (?:plain |simple )?(?:english|german|french|spanish|italian|portuguese|dutch|russian|chinese|japanese|korean"
    r"|arabic|hindi|polish|turkish)"
)
_SHAPE = (
    r"(?:in|with(?:in)?|using|under|at most|no more than|max(?:imum)?|fewer than|less than) (?:[a-z]+ ){0,3}?(?:one"
    r"|two|three|four|five|ten|a few|\d+)(?:[- ](?:to|or)[- ](?:\w+))? (?:[a-z]+ )?(?:sentences?|words?|paragraphs?"
    r"|lines?|bullets?|points?|characters)(?: or less| max(?:imum)?)?|(?:in|using|with|as) (?:an? )?(?:(?:short|brief"
    r"|simple|bulleted|numbered|markdown|bullet) )*(?:list|table|bullets)|(?:in|using|with) (?:markdown|json|detail"
    r"|short|brief|bullet points|(?:simple|plain|layman'?s?|easy) \w+)",
    r"step[- ]by[- ]step|briefly|concisely|(?:with|and) (?:your |the )?(?:sources|citations|references|links)|eli5",
    r"like i(?:'m| am) (?:five|5)|auf (?:deutsch|englisch)|in einem satz|en (?:français|anglais|español|inglés)",
    r"en una frase|en une phrase",
)
SHAPE_END = re.compile(
    rf"(?:(?<![\s,;:–—(-])[\s,;:–—(-]++(?:(?:and )?(?:please )?(?:answer|reply|respond|explain it|do so) )?"
    rf"(?:{_any(*_SHAPE)}|{_TONGUE}(?=,? please))|[,;–—(] ?(?:and )?(?:answer )?{_any(_TONGUE)})"
    r"[\s.!?)]*(?:,? ?please)?[\s.!?)]*\Z",
    _I,
)
ORDER = re.compile(
    r"\W*+(?:(?:please|and|also|but|then|just|bitte) )*(?:(?:answer|reply|respond)(?!\w)(?! to (?!me|my|this"
    r"|the question))|keep (?:it|your|the (?:answer|response))|be (?:brief|concise|short|precise|specific|thorough"
    r"|honest|detailed)|(?:make|write|format|output|return|give|present|phrase) (?:it|your|the (?:answer|response"
    r"|result|output))"
    rf"|(?:{_any(*_SHAPE)}|{_TONGUE})[\s.!,]*(?:please|only)?\W*\Z|(?:limit|restrict) (?:yourself|your|the answer)"
    r"|(?:do not|don't|never|no need to) (?:use|include|write|make|add|mention|give|say|repeat|explain|cite|search)"
    r"|(?:cite|include|add|provide|give|list|quote|show|use)(?: me)?(?: your| the| all| any| some"
    r"| at least)?(?: \w+)? (?:sources?|references?|citations?|links?|bullet points?|markdown|emojis?)(?!\w| of)"
    r"|think (?:step|carefully|hard)|take your time|use (?:simple|plain|at most|no more|a table|bullets)"
    r"|you are (?:an?|my|the) |act as |pretend |imagine (?:you|that you)|your (?:task|job|role) is|antworte"
    r"|fasse? dich|halte (?:dich|es)|réponds|répondez|sois |soyez |responde|contesta|sé (?:breve|conciso)|schreibe?n? "
    r"|用.{1,8}(?:回答|作答|解释)|回答[要请时]|.{1,8}で(?:答えて|回答して|お答え))",
    _I,
)

# Why a message needs no search

CURRENT = re.compile(
    r"(?<!\w)(?:latest|newest|today|tonight|yesterday|tomorrow|right now|this (?:week|month|year)|recent(?:ly)?|news"
    r"|current(?:ly)?(?! (?:code|function|output|line|value|node|index|user))|up[- ]to[- ]date|outdated|deprecated"
    r"|still (?:supported|maintained|valid|recommended)|as of|20(?:2[3-9]|3\d)|aktuell\w*|neueste\w*|heute|derzeit"
    r"|actuel\w*|derni[eè]re?s?|aujourd.hui|actualmente|últim[oa]s?|hoy)(?!\w)|最新|目前|今天|现在|最近|今日|現在",
    _I,
)
CODE_TALK = re.compile(
    r"\b(?:fix|debug|explain|refactor|optimi[sz]e|review|improve|complete|convert|port|rewrite|simplify|document"
    r"|comment|tests?|wrong|bug|errors?|fail\w*|crash\w*|broken|work\w*|output|prints?|faster|write|add|implement"
    r"|change|translate|(?:this|my) (?:code|function|script|query|snippet|program|class|regex)|do(?:es)? (?:this|it"
    r"|the)|korrigier\w*|erklär\w*|fehler|funktioniert|macht|explique\w*|corrige\w*|erreur|fait|explica|arregla"
    r"|hace)\b|修复|解释|错误|优化|修正|説明|エラー|直して",
    _I,
)
TRANSLATE = re.compile(
    r"(?:translate|übersetze?n?|tradui(?:s|re|sez)|traduce|traducir|traduza|traduci|переведи(?:те)?)(?!\w)|.*(?:翻译"
    r"|翻譯|翻訳|訳して|译[成为])",
    _I,
)
INTO = re.compile(
    rf"\w+ .*?\w(?: (?:to|into|ins|auf|en|al|на) \w| {_TONGUE})"
    r"|\w+ (?:this|that|it|your|the (?:above|following|text|last))",
    _I,
)
SAY = re.compile(rf"how (?:do|would|can) (?:you|i|we) say .+ {_TONGUE}\W*", _I)
REWRITE = re.compile(
    r"(?:rewrite|rephrase|paraphrase|proofread|reword|polish|shorten|edit|correct|improve|korrigiere?|verbessere?"
    r"|formuliere|corrige[rz]?|reformule[rz]?|réécris|reescribe|fix (?:\w+ )?(?:grammar|spelling|typos?|sentence|text)"
    r"|make (?:this|it|that) (?:\w+ )?(?:more|less|shorter|longer|better|formal|\w+er))(?!\w)|.*(?:改写|润色|校正"
    r"|書き直)",
    _I,
)
SUMMARISE = re.compile(
    r"(?:summari[sz]e|sum up|condense|simplify|tl;?dr|fass\w*|résume[rz]?|resume)(?!\w)|.*(?:总结|概括|要約)", _I
)
IT = re.compile(r"\w+ (?:up )?(?:this|that|it|your (?:last )?(?:answer|reply|response)|the above)(?!\w)", _I)
CONVERSATION = re.compile(
    r"(?:our|this) (?:conversation|chat|discussion)|(?:conversation|chat) so far|what did (?:i|you"
    r"|we) (?:just )?(?:say|ask|tell|mean|talk|discuss)|(?:my|your) (?:last|previous|first|earlier) (?:question"
    r"|message|answer|reply)|(?:repeat|say) (?:that|it)(?: again)?\W*\Z|what(?:'s| is| was) my name|unser(?:e"
    r"|es)? (?:gespräch|unterhaltung)|was habe ich (?:gerade )?ge(?:sagt|fragt)|notre conversation"
    r"|nuestra conversación|我们的对话|我刚才|会話を要約",
    _I,
)
SUM_WORDS = re.compile(
    r"(?:plus|minus|times|multiplied by|divided by|mod|squared|cubed|to the power of|(?:the )?square root of|sqrt"
    r"|percent of|% of|mal|geteilt durch|fois|por|más|乘以|加|减|除以)",
    _I,
)
SUM_ASKED = re.compile(
    r"(?:what(?:'s| is)|how much is|(calculate|compute|solve|evaluate|berechne|calcule|calcula|计算|計算)|was ist"
    r"|wie ?viel ist|combien (?:font|fait)|cuánto es|等于多少|是多少)",
    _I,
)
SUM = re.compile(r"[\d\s.,+*/x×÷^()%=?？!√:–-]+")
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}(?:\1\d{1,4})?|\d{4}-\d{4}|24/7")

# What leans on what came before

_COMMON_WORDS = (
    "a about after again all also am an and any are as at be been before but by can continue could details did do does "
    "each elaborate else every exactly example examples explain far for from further get go had has have he her here "
    "him his how however i if in into is it it's its just know last like long many me mean means more most much my new "
    "next no not now of often old on one or other our please really say same she should since so some source sources "
    "still such sure tell than that that's the their them then there these they they're this those to too true under "
    "until up us very was we were what what's when where which while who who's whom whose why will with would yes you "
    "your yours according both during overall "
    "aber auch das dem den der des die ein eine er es für ist mehr mit nein noch oder seit sie und von wann war warum "
    "was weiter wer wie wieso wo ja zum au aux avec c'est combien comment dans de des du en est et il la le les mais "
    "non ou où oui par plus pour pourquoi quand que quel quelle qui sur un une al como cómo con cuál cuándo cuánto del "
    "dónde el es los las más o para pero por porque qué quién si sí su una y perché quando quanto почему когда где кто "
    "что ещё да нет 为什么 什么时候 谁 多少 更多 继续 还有吗 怎么样 なぜ どうして いつ もっと 続けて 誰"
)
COMMON = frozenset(_COMMON_WORDS.split())
LEAN_START = re.compile(
    rf"\W*+(?:{_any('(?:and |but |so )?(?:what|how) (?:about|of)|and|but|or|same (?:for|with)|(?:und )?was ist mit')}"
    rf"|{_any('und|aber|oder|et pour|et|mais|y|pero|e|ma|mas|а|и|но')}|那么|那麼|那(?=.*呢)|では|じゃあ"
    rf"|それで)[\s,，、]*",
    _I,
)
PRONOUN = re.compile(
    r"(?<![\w'’])(?:he|she|they|it|him|her|them|his|hers|its|their|theirs|(?:he|she|it)['’]s|they['’]re|there|er|ihn"
    r"|ihm|ones|sie|ihre?[rnms]?|seine?[rnms]?|dessen|deren|dort|davon|elles?|ils|cela|ça|él|ella|ellos|ellas|sus?|eso"
    r"|th(?:is|at)|these|those)(?!\w)|-(?:t-)?(?:ils?|elles?)(?!\w)|[他她它]们?|那[个里时]|这[个里]|それ|その|彼女?"
    r"|そこ"
)
BARE_CASE = re.compile(
    r"(?:in|for|on|at|since|from|with|without|near|um|im|für|seit|ohne|en|pour|depuis|sans|desde|para"
    r"|sin)(?: \S+){1,2}|[\d\s./-]+",
    _I,
)  # in 2010, without sugar: what of, only the question before it says
AGREED = re.compile(
    r"(?:yes|yeah|yep|yup|sure|more|continue|go (?:on|ahead)|do it|ja|mehr|weiter|oui|plus|sí|más|да|继续|更多|もっと"
    r"|はい)(?: please)?",
    _I,
)
WEAK = frozenset(("this", "that", "these", "those"))  # mostly they point at what follows
EXPLETIVE = re.compile(
    r"\b(?:is|are|was|were|will|would) there\b|\bthere (?:is|are|was|were|will|any|an?|be|exist\w*)\b|\bit(?:'s| is"
    r"| was)? (?:takes?|took|true|possible|legal|illegal|safe|worth|necessary|normal|common|rain\w*|snow\w*|cost to"
    r"|mean to)\b|\bth(?:is|at|ese) (?:year|week|month|morning|time|season|century|decade|days)\b",
    _I,
)
CLAUSE = re.compile(r"[,;:.?!]| (?:and|when|if|because|but|while|after|before|since|or|und|wenn|weil|et|quand|y|si) ")
ASKS = re.compile(
    r"\W*+(?:who|what|when|where|why|which|whose|how|is|are|was|were|do|does|did|can|could|should|will|has|have|compare"
    r"|list|find|wer|was|wann|wo|warum|wie|welche\w*|qui|que|quand|où|pourquoi|comment|quel\w*|quién|qué|cuándo|dónde"
    r"|cómo|cuál\w*|por qué|кто|что|когда|где|как|почему)(?!\w)|.*[?？]|.*(?:谁|什么|哪|几|多少|吗|呢|か)\W*\Z",
    _I,
)

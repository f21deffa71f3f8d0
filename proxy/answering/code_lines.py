"""Which lines of an answer are code or data by their own look, without a fence around them. Handed how a line begins,
and what stands behind a place in it; says whether a program would read it.

The signs are few and plain, as a line that is taken for code loses its citations. What prose could look like as well
(`city: Paris`, `- Paris`) is prose.
"""

from __future__ import annotations

import re

from providers.text.patterns import pattern

_ITEM = pattern(r"\s*(?:[-*+•‣◦]|\d{1,3}[.)])\s")
_QUOTED = pattern(r"^(?!>>>)(?:> ?)+")
_BEGINNINGS = {
    "prompt": r"\$ (?!\d)|>>>|PS [A-Z]:\\|(?:julia|sqlite|mysql|postgres|irb|lua|ghci)\S*>",
    "comment": r"//|/\*|#!/|# *(?:include|define|ifdef|ifndef|pragma)\b|--\[\[",
    "formula of a table, POD": r"=(?=[A-Za-z@(])",
    "key": r"""[a-z_][\w.-]*: ["']|(?:"[^"\n]*"|'[^'\n]*') *: *(?:["'\[{\d-]|true|false|null|$)""",
    "value, block": r"""[{}]|\[ *["{]""",
    "footnote": r"\[\^",
    "line of a log": r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d[.,]\d|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d",
    "level of a log": r"\[?(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b\]?[: ]",
    "step of an agent": r"Action: *\w* *$|Action Input:|Observation:",
    "LaTeX, BibTeX": r"\\[A-Za-z]+|@[a-z]+\{",
    "added line": r"\+(?=[^\s\d+])",
    "SQL": r"(?:SELECT|INSERT INTO|DELETE FROM|CREATE (?:TABLE|VIEW)|ALTER TABLE|WHERE|UPDATE \w+ SET) |VALUES ?\(",
    "trace": r"""File "[^"\n]+", line \d|at \S+ \(\S+:\d+:\d+""",
    "Lisp": r"\((?:def\w*|let|aref|get|nth|map|list|setq?|fn|lambda|vector|conj|reduce|apply|println?) ",
    "substitution": r"[a-z]+/[^/\s]*\[|:\w*s/",
}
_LOOKS = pattern(rf"[ \t]*(?:{'|'.join(_BEGINNINGS.values())})")

_DECLARED = r"(?:(?:const|let|var|val|local|my|our|auto|final|static|int|char|float|double|bool|string|export|set)\s+)?"
_TARGET = r"[$@%&*]?[A-Za-z_][\w.$-]*(?:->\w+|\[[^\]\n]*\])*"
_TYPE = r"(?:\s*:\s*(?:[A-Za-z][\w.]*)?(?:[\[<][^\]>\n]*[\]>])?)?"
_SIGN = r"\s*(?:[-+*/%&|^:.?]|<<|>>|\*\*|//)?=(?![=>~])|\s*<<?-\s"
_ASSIGNED = pattern(rf"[ \t]*[-+]?{_DECLARED}(?P<name>{_TARGET}(?:,\s*{_TARGET})*){_TYPE}(?P<sign>{_SIGN})", re.ASCII)
_FORMULA_ENDS = pattern(r"\S\$(?!\w)")
_BRACKETED = pattern(r"[{\"']|\[(?!\d+\])")
_WORD_WITH_CAPITAL = pattern(r"[A-Z][A-Za-z]*")

_KEYWORD = pattern(
    r"[ \t]*(?:async|await|case|catch|char|class|const|def|do|elif|else|elsif|end|enum|except|export|extern|fn|for|"
    r"foreach|from|func|function|if|impl|import|include|int|interface|let|local|match|my|namespace|new|package|print|println|"
    r"printf|private|protected|pub|public|puts|raise|repeated|require|return|select|static|struct|sub|switch|template|"
    r"throw|try|type|unless|unsigned|until|use|using|val|var|void|when|while|with|yield)\b(?!-)"
)
_PROGRAM_SIGN = pattern(r"[A-Za-z0-9_]\(|[={}]|::|->|\$\w|&&|\|\||[!=]=")
_SHELL = pattern(
    r"[ \t]*(?:sudo +)?(?:apt|awk|brew|cat|cd|chmod|cp|curl|docker|echo|export|find|git|grep|head|kubectl|ls|make|"
    r"mkdir|mv|node|npm|npx|pip3?|printf|psql|python3?|rm|sed|sh|ssh|tail|tar|touch|uv|wget|yarn) "
)
_SHELL_SIGN = pattern(r"\s--?\w|\s\|\s|[\"']|\s[\w./-]*/[\w.-]|\.\w{1,4}(?=\s|$)|&&|\s>>?\s|\$\w")
_OPERATORS = pattern(r"\s(?:==|!=|===|!==|&&|\|\||:=|\+=|-=|%>%|\|>|<-|::)\s|\w\([^()]*\)\s*[;{]|\)\s+(?:#|//)\s")

_LABEL = pattern(r"[ \t#>*]*(?:In|Out) ?|[ \t]*[a-z][\w-]*", re.ASCII)
_STATEMENT_END = pattern(r";[ \t\r]*(?:\n|\Z)")
_OPERATOR = pattern(r"(?:^|\s)(?:=|-+>|--)(?:\s|$)")
_DECLARATION = pattern(r"[ \t]*[A-Za-z_][\w:]*(?: +[A-Za-z_][\w:]*)? +\**[A-Za-z_]\w*", re.ASCII)
_KEYWORD_AND_NAME = pattern(r"[ \t]*(?:return|yield|puts|print|echo|del|raise|throw|assert)(?:\s+[\w.$@]+)?")
_LOOP = pattern(r"[ \t]*(?:async\s+)?(?:for|if|elif|while)\s.*\bin")
_NUMBERS = pattern(r"[ \t]*(?!\d{1,3}(?:\s\d{3})+$)(?:\[\d\]|[-+]?\d[\d.,]*)(?:\s+[-+]?\d[\d.,]*|\s*\[\d\])+")
_MOVE = r"(?:[KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](?:=[QRBN])?|O-O(?:-O)?)[+#]?[!?]{0,2}(?: |$)"
_CHESS = pattern(rf"[ \t]*\d+\.(?:\.\.)? ?{_MOVE}(?:\d+\.(?:\.\.)? ?|{_MOVE}|\[\d\] ?|\{{[^}}]*\}} ?)*")
_CHORD = r"[A-G][#b]?(?:maj|min|dim|aug|sus|add|m)?\d{0,2}(?:/[A-G][#b]?)?"
_CHORDS = pattern(rf"[ \t|]*{_CHORD}(?:[ \t|]+(?:{_CHORD}|\[\d\]))+")


def is_code(head: str, margin: int) -> bool:
    """Is a line that begins like this code or data? `margin` is how far the text of an open list item is indented."""
    item = _ITEM.match(head)
    if not item and _indent(head) >= margin + 4:
        return True
    said = head[item.end() :] if item else _QUOTED.sub("", head)
    if ("\t" in said.lstrip() and "|" not in said) or _OPERATORS.search(said) or _is_assigned(said):
        return True
    if item:
        return False
    if _LOOKS.match(said) or (_KEYWORD.match(said) and _PROGRAM_SIGN.search(said)):
        return True
    return _SHELL.match(said) is not None and _SHELL_SIGN.search(said) is not None


def is_statement(head: str, follows: str) -> bool:
    """Do these words, all that the line has so far, make a statement or a row of values with a bracket behind them?"""
    if follows.startswith((":", ",", '"')) and _LABEL.fullmatch(head):
        return True
    if _STATEMENT_END.match(follows) and may_be_ended(head):
        return True
    words = head.rstrip()
    return any(row.fullmatch(words) for row in (_KEYWORD_AND_NAME, _LOOP, _NUMBERS, _CHESS, _CHORDS))


def may_be_ended(head: str) -> bool:
    """Would a `;` at the end of the line end a statement?"""
    return bool(_OPERATOR.search(head) or _KEYWORD.match(head) or _DECLARATION.fullmatch(head))


def _indent(head: str) -> int:
    blanks = head[: len(head) - len(head.lstrip(" \t"))]
    return len(blanks.expandtabs(4))


def _is_assigned(head: str) -> bool:
    """`x = 1`, `name: str = 1`, `x <- 1`. Not `E = mc²`: a word with a capital may begin a formula in prose."""
    found = _ASSIGNED.match(head)
    if found is None or (found["name"].startswith("$") and _FORMULA_ENDS.search(head, found.end())):
        return False
    if _BRACKETED.search(head, found.end()):
        return True
    spaced = found["sign"] == " =" and head[found.end() : found.end() + 1] == " "
    return not (spaced and _WORD_WITH_CAPITAL.fullmatch(found["name"]))

"""What markers look like as models write them, whole and half written, and the addresses in which a number is none.
Plain patterns; where they count is said elsewhere.
"""

from __future__ import annotations

import re

NUMBER = "[1-9][0-9]{0,2}"
NUMBERS = f"{NUMBER}(?:, ?{NUMBER})*"
JSON = re.compile(r'\{|\[[ \t]*[{"\r\n]')
JSON_BEGUN = re.compile(r"\[[ \t]*")
BRACKET = re.compile(rf"\[(\[)?({NUMBERS})\](?(1)\])")
BRACKET_BEGUN = re.compile(rf"\[\[?(?:{NUMBERS}(?:, ?|\])?)?")
LENTICULAR = re.compile(rf"【({NUMBERS})(?:†[^】\n]*)?】")
LENTICULAR_BEGUN = re.compile(rf"【(?:{NUMBERS}(?:, ?|†[^】\n]*)?)?")
TARGETS = ("https://", "http://", "www.", "local:", "/", "#", "<")
TARGET_STOP = re.compile(r"[()\r\n]")
ADDRESS = re.compile(r"(?:https?:/|\bwww\.[^\s/]*)\Z", re.IGNORECASE)
ADDRESS_STOP = re.compile(r"[()\[\]<>\"`*|]|[^!-~]")


def may_become_target(begun: str) -> bool:
    """Is what stands behind a `(` the beginning of a web address, and too short to be one?"""
    return not begun.startswith(TARGETS) and any(target.startswith(begun) for target in TARGETS)

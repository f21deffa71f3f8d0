"""Regular expressions that are compiled when they are first used."""

import copy
import pkgutil
import re
from importlib import import_module

import providers
import proxy
import tools
from providers.text.patterns import Uncompiled, pattern

OPTIONAL = ("proxy.upstreams.litellm", "proxy.watching.span_export")  # what they want need not be installed


def test_a_pattern_is_used_like_a_compiled_one() -> None:
    number = pattern(r"(\d+)x", re.IGNORECASE)
    assert number.pattern == r"(\d+)x"
    assert number.flags == re.IGNORECASE
    for _ in range(2):
        found = number.search("a 12X b 3x")
        assert found is not None
        assert found[1] == "12"
        assert number.findall("a 12X b 3x") == ["12", "3"]
        assert number.sub("-", "a 12X b 3x") == "a - b -"
        assert number.groups == 1
    assert pattern(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_pattern_can_be_copied_before_and_after_it_was_used() -> None:
    number = pattern(r"\d+")
    assert copy.copy(number).findall("1 22") == number.findall("1 22") == copy.copy(number).findall("1 22")


def test_every_pattern_compiles() -> None:
    found = 0
    for package in (providers, proxy, tools):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.startswith(OPTIONAL):
                continue
            for value in vars(import_module(module.name)).values():
                if isinstance(value, Uncompiled):
                    re.compile(value.pattern, value.flags)
                    found += 1
    assert found > 100

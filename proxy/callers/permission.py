"""What a caller's policy means for models. Handed a caller and what it names; refuses a model that it may not use, in
one text for what is not allowed and what is not there.

Where a caller may use certain models alone, no body leaves in which the next parser could read another model's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from ..values.errors import RequestError, refuse
from ..values.patient_json import loads
from .caller import Caller

_OTHER_MODELS = frozenset({"model", "models", "fallbacks", "fallback_models"})  # where some server looks for one
_FORM = b"multipart/form-data"
_FIELD_NAME = re.compile(rb'(?<![\w-])name(\*[0-9*]*)?\s*=\s*("(?:[^"\\\r\n]|\\.)*"|[^\s;,]+)', re.IGNORECASE)
_NO_LETTER = re.compile(rb"[^a-z]")


def may_use(caller: Caller, model: str) -> bool:
    patterns = caller.policy.models
    return patterns is None or any(fnmatchcase(model, pattern) for pattern in patterns)


def check_model(caller: Caller, *names: str) -> None:
    """Under one of these names, the first of which the client wrote."""
    if caller.policy.models is None or any(may_use(caller, name) for name in names):
        return
    if not names[0]:
        text = "This key may use certain models alone: name one of them in `model`. `GET /v1/models` lists them."
        raise refuse(400, text, param="model", code="missing_field")
    text = f"The model '{names[0][:200]}' does not exist here, or this key may not use it: see `GET /v1/models`."
    raise refuse(404, text, param="model", code="model_not_found")


def plain_body(caller: Caller, body: bytes, kind: str = "application/json") -> bytes:
    """The body as it may leave: for a caller with certain models alone, one that names a single model to every reader.
    JSON is written anew, because of two equal keys one server takes the first and another the last."""
    if caller.policy.models is None:
        return body
    if kind.split(";")[0].strip().lower().encode() == _FORM:
        _check_form(body)
        return body
    try:
        parsed = loads(body)
        _check_fields(parsed)
        return orjson.dumps(parsed)
    except ValueError as error:
        raise refuse(400, f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    except orjson.JSONEncodeError:
        raise refuse(400, "The request body is nested too deeply.", code="invalid_json") from None


def _check_fields(body: Mapping[str, Any]) -> None:
    """Servers written in Go take `Model` for `model`; routers take other models from other fields."""
    if other := next((name for name in body if name != "model" and name.casefold() in _OTHER_MODELS), None):
        raise _ambiguous(other)


def _check_form(body: bytes) -> None:
    """One field is called `model`, and none by anything that some reader may take for that."""
    names = [(found[1], found[2]) for found in _FIELD_NAME.finditer(body)]
    models = [name for more, name in names if more or _letters(name) == b"model"]
    if models != [b'"model"']:
        raise _ambiguous("model")


def _letters(name: bytes) -> bytes:
    return _NO_LETTER.sub(b"", unquote_to_bytes(name).lower())


def _ambiguous(field: str) -> RequestError:
    text = "This key may use certain models alone: name one of them once, in a field that is called `model`."
    return refuse(400, text, param=field[:100], code="ambiguous_model")

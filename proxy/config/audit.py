"""What an operator may say about the audit: the `audit` section, strict and frozen. A file's name alone is enough.
Handed values from the config; hands on where requests are written down, and how much of that is kept.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, Field

from providers.settings import Count, no_switch

from .upstreams import STRICT


def _file_name(value: str) -> str:
    if value and (value.endswith("/") or not value.isprintable()):
        raise ValueError("must be the name of a file")
    return value


class AuditConfig(BaseModel):
    """Without a `file` nothing is written down."""

    model_config = STRICT

    file: Annotated[str, AfterValidator(_file_name)] = ""
    """Where requests are written down; only Groundwire's own user may read it. Empty: nowhere. The file's name alone,
    `audit: audit.jsonl`, says the same.
    """
    max_size: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=4096)] = ByteSize(100 << 20)
    """When the file would grow beyond this it is put aside as `FILE.1`."""
    keep: Annotated[Count, Field(le=1000)] = 5
    """How many files that were put aside are kept."""


def _said(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


Audit = Annotated[AuditConfig, BeforeValidator(_said)]

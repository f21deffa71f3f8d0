"""Anthropic's Messages API: requests with content blocks in, messages of content blocks out."""

from __future__ import annotations

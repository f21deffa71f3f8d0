"""The proof of a citation as JSON, the same in every dialect. Handed a citation; hands on the fields that stand beside
its address and title, those that have nothing to say left out.
"""

from __future__ import annotations

from typing import Any

from ..values.events import Citation


def proof_fields(citation: Citation, *, place: bool = True) -> dict[str, Any]:
    """With `place` also what is true of this one marker, not of its source."""
    proof = citation.proof
    fields: dict[str, Any] = {"cited_text": proof.quote} if proof.quote else {}
    if proof.basis:
        fields["basis"] = proof.basis
    if place:
        fields |= _marker_fields(citation)
    return fields


def _marker_fields(citation: Citation) -> dict[str, Any]:
    """Did the model leave it out, and what of its sentence stands nowhere in the source?"""
    auto = {"auto": True} if citation.auto else {}
    unmatched = citation.proof.unmatched
    return {**auto, **({"unmatched": list(unmatched)} if unmatched else {})}

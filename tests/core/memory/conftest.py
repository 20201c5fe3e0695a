"""A knowledge base under each engine."""

from __future__ import annotations

from support.engines import clock, kb, node

__all__ = ["clock", "kb", "node"]

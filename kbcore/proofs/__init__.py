"""Proofs of answers: construction, shapes for JSON, and text."""

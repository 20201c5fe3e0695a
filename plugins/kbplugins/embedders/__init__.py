"""Embedders of texts."""

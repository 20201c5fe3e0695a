"""Adapters for agent frameworks; each module imports its framework, which is an extra."""

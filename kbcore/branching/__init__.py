"""Scopes as alternatives to the base partition: fork, compare and merge."""

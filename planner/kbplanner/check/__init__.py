"""Checks of texts without storing them: every error and warning, with codes."""

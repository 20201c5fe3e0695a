"""Context windows as text for a prompt."""

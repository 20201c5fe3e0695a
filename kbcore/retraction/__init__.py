"""Retraction cascades: the conclusions that no longer hold after facts or rules are removed."""

"""Predicates whose rows plugins provide, or a search of the stored facts."""

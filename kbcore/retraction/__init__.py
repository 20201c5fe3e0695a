"""Retraction: which conclusions no longer hold once a fact or rule is removed."""

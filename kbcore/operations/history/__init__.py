"""The past of a knowledge base: the history of facts, reads at an earlier instant, undoing
changes.
"""

"""Evaluation of a plan, component by component, including the well-founded semantics."""

"""Answers: from stored facts, through rules, and counted up."""

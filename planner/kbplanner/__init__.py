"""A language of facts, rules and goals, and its compiler to join plans."""

"""The current state of every tenant (facts, rules, scopes) and the functions that change it."""

"""Commands on facts, rules, goals and scopes."""

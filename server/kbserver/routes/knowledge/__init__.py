"""Routes on facts, rules, goals, transactions and scopes."""

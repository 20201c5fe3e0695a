"""What is true now: facts, rules and scopes of every tenant, and the one way to change them."""

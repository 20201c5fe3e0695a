"""Query answering: stored facts, rules, aggregates, goal tables and request budgets."""

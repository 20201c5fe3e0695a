"""The intermediate representation: terms, rules, programs, patterns and their limits."""

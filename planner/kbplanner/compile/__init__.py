"""From checked rules to join plans and bytecode."""

"""Episodes, the evidence of facts, purges, and the restoration of facts."""

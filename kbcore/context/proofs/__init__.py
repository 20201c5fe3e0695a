"""Goals of a context window: their proofs, evidence, near misses and rules."""

"""Benchmark of memory systems for agents: made conversations, exact answers, no judge model."""

"""The C engine seen from Python: relations, runs and answers."""

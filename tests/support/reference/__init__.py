"""The reference engine in Python, which tests compare the C engine with."""

"""Standing goals over HTTP: bodies, answers and event streams."""

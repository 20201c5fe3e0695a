"""The server process: thread pools, garbage collection and request metrics."""

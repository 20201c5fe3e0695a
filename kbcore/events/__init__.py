"""Change events: the feed of committed changes, and their shape for clients."""

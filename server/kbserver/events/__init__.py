"""Event streams: server-sent events with a ring of recent events per tenant."""

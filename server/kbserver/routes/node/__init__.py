"""Routes on the node: administration, keys, operations, replication, events and documents."""

"""Durability: log records, the one write path, snapshots and recovery."""

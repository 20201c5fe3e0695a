"""What makes a change last: records, the one write path, snapshots and recovery."""

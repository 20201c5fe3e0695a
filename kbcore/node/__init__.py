"""A running process: its runtime, tenants, API keys, quotas, readiness and snapshots."""

"""Memory upkeep: expiry sweeps, decay, eviction and consolidation."""

"""A knowledge base: tenants, scopes, truth, durability."""

"""Subscriptions to standing goals, which are part of the state of a tenant."""

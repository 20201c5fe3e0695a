"""Changes of standing goals before those in memory, upkeep of subscriptions, and webhooks."""

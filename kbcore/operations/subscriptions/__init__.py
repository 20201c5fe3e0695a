"""Subscriptions to the answers of goals: their changes, also before those in memory, and
webhooks.
"""

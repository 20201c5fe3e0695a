"""The handle on one tenant: every method that HTTP routes and Python programs call."""

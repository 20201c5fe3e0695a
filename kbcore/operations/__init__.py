"""Handle on one tenant, with every method that HTTP routes and Python programs call."""

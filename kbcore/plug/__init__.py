"""The seam to plugins: hooks, protocols, and the manager that finds them."""

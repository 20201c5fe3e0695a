"""The plugin interface: hooks, protocols, and the manager that loads plugins."""

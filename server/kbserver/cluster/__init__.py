"""A node of a cluster as a server: requests for tenants of other nodes, and calls between nodes."""

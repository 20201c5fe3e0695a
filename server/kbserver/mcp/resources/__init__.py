"""MCP resources: their addresses, contents and subscriptions."""

"""Routes for agents: context windows, memory, language, MCP and A2A."""

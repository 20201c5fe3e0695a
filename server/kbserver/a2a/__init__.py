"""The agent-to-agent protocol."""

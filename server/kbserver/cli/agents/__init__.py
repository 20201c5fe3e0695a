"""Commands for memory, language models and MCP."""

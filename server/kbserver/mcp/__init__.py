"""The tool protocol (MCP): what agents and editors call, in both of its eras."""

"""The server as a protected resource of OAuth (RFC 9728): its addresses and its metadata."""

from __future__ import annotations

from typing import Any

from kbcore.config.settings import Config
from kbserver.security.permissions import SCOPES

METADATA_PATH = "/.well-known/oauth-protected-resource"
"""Path of the metadata of the protected resource (RFC 9728)."""

MCP_PATH = "/mcp"


def audience(config: Config) -> str:
    """Return the audience that tokens must name."""
    return config.oauth_audience or resource(config)


def resource(config: Config) -> str:
    """Return the identifier of this server as a protected resource: the address of MCP."""
    return config.public_url + MCP_PATH


def metadata_url(config: Config) -> str:
    """Return the address of the metadata that a 401 answer names."""
    return f"{config.public_url}{METADATA_PATH}{MCP_PATH}"


def metadata(config: Config) -> dict[str, Any]:
    """Return the metadata of the protected resource (RFC 9728)."""
    return {
        "resource": resource(config),
        "authorization_servers": [config.oauth_issuer],
        "scopes_supported": list(SCOPES.values()),
        "bearer_methods_supported": ["header"],
        "resource_name": "kbcore",
    }

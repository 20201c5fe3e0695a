"""`kbcore tools`: the definitions of the tools for model APIs."""

from __future__ import annotations

from importlib import import_module

import click

from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import OutputOption, print_json
from kbserver.mcp.tools import FORMATS, tools_of

ROUTES = "kbserver.app"
"""The module whose import declares every operation, and so every tool."""


@command(
    "tools",
    "kbcore tools --format anthropic > tools.json",
)
@click.option(
    "--format",
    type=click.Choice(tuple(FORMATS)),
    default="openai",
    show_default=True,
    cls=OutputOption,
    help="The API that takes them: chat completions, responses, Anthropic messages, or MCP",
)
@click.option("--all", "every", is_flag=True, help="Also the tools of MCP_TOOLS=all")
@click.option("--memory", is_flag=True, help="The tools of MCP_TOOLS=memory instead")
@click.option("--model", is_flag=True, help="Also the tools that need a language model")
def tools(format: str, every: bool, memory: bool, model: bool) -> None:
    """Print the definitions of the tools for model APIs.

    They are those of the MCP server, as a JSON list. A program gives them to a model as `tools`,
    and sends the calls of the model to a server, at /mcp or with `kb.call_tool` of the Python
    client. Needs no server.
    """
    import_module(ROUTES)
    profile = "all" if every else "memory" if memory else "default"
    listed = tools_of(profile, model).values()
    print_json([FORMATS[format](tool.shown) for tool in listed])

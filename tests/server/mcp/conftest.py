"""An agent of the application under test."""

from __future__ import annotations

import pytest
from support.agents import Agent
from support.http import Client


@pytest.fixture
def agent(client: Client) -> Agent:
    return Agent(client)

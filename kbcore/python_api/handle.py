"""Base class of the parts of `KnowledgeBase`."""

from __future__ import annotations

from kbcore.operations.tenant_kb import TenantKB


class PythonHandle:
    """A knowledge base as programs see it; `kb` is the handle on the tenant, for low-level use."""

    kb: TenantKB

"""The operations of `KnowledgeBase`, by subject: what Python programs call on one tenant.

Each part works on the handle of a tenant (`kbcore.operations.tenant_kb`), which takes parsed
arguments; the parts take text or Python values. `kbcore.node.knowledge_base` joins them to the
public class.
"""

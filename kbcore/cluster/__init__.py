"""Nodes that share the shards of one storage: who has which shard, and how a shard changes its
node.
"""

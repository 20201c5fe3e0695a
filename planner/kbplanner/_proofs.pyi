from typing import Any

def graphs(
    proof: tuple[Any, ...],
    queue: bytearray,
    names: bytearray,
    labels: list[str],
    start: int,
    stop: int,
    /,
) -> list[dict[str, Any]]: ...
def order(
    queue: bytearray,
    names: bytearray | None,
    at: int,
    nodes: int,
    facts: bytes,
    instances: bytearray,
    ends: bytes,
    premises: bytes,
    max_nodes: int,
    max_depth: int,
    most: int,
    /,
) -> tuple[int, int, int]: ...
def trees(
    proof: tuple[Any, ...], queue: bytearray, nodes: list[Any], start: int, stop: int, /
) -> None: ...

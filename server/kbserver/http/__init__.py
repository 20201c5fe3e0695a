"""The HTTP layer: the server loop, request heads and bodies, headers and paging."""

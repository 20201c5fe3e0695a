"""The HTTP room: Flask under gevent, and the kbcore command."""

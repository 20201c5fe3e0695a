"""The built-in plugins: the outside world, behind the hooks of kbcore."""

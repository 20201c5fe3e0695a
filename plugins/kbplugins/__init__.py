"""The built-in plugins: storage, metrics, language models and strategies behind the hooks of
kbcore.
"""

"""Settings: the table of settings, their parsers, and warnings about risky values."""

from kbcore.config.settings import SETTINGS, Config, Setting, environment

__all__ = ["SETTINGS", "Config", "Setting", "environment"]

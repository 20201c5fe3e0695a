"""Traces for OpenTelemetry: `spans` is what all code asks, `otel` alone knows the library."""

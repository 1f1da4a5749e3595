"""Traces, where the application uses OpenTelemetry."""

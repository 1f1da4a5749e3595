"""Handlers that are settings: HTTP endpoints, commands, webhooks."""

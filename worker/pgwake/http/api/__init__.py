"""The HTTP API, a module a resource."""

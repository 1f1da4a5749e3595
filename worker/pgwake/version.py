"""The versions of the package, and of the schema that it needs."""

__version__ = "0.1.0"
SCHEMA_VERSION = 2

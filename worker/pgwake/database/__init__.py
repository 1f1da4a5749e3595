"""The database: its URL, connections and sessions, the schema's installer, SQL text."""

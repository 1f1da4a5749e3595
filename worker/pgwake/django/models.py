"""The jobs as Django's models see them; Django never creates or changes the table."""

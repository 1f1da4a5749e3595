"""Jobs as handlers see them, and what handlers declare."""

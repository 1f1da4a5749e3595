"""The wake-up protocol as a model, and its checker."""

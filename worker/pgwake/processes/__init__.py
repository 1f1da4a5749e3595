"""Processes that run process=True handlers."""

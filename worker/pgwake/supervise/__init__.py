"""Worker processes: started, watched, restarted, and what a dead one had given back."""

"""An attempt at a job: the handler's call, its deadline, what came of it."""

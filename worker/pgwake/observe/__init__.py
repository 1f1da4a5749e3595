"""What operators see of a worker: metrics, health, logs."""

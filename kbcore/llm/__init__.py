"""Language model calls: retries, circuit breaker, concurrency limit, structured answers."""

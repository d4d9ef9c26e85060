"""GPU and host memory of a candidate: weights, KV cache and overhead, by engine, in bytes."""

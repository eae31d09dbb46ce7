"""Evidence and contract in, verdict out: pure functions, one module a channel."""

"""From calls to jobs: one module per kernel, which prepacks constants and fills argument blocks."""

"""The planner of test-time strategies: pure functions of a table of samples. Nothing here samples a model."""

"""The planner of value-based control: which runs, the law of samples, the prescription, its forecast and audit."""

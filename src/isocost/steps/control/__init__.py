"""The steps of a study of value-based control: one file a step."""

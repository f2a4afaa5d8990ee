"""The steps of a study of policy training."""

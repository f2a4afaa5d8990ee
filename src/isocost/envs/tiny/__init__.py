"""The environments that ship, each in one file, which has an `ENVIRONMENT` and is found by it."""

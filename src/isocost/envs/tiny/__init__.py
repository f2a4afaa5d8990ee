"""The environments that ship, each in one file."""

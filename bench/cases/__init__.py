"""The cases: each a function from options to a record."""

"""The built-in problems, one family a file."""

"""Untrusted Python in processes without rights, and the tool that runs it."""

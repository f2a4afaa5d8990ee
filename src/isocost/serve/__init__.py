"""The server on this machine: what its applications share."""

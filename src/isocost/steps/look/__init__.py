"""Steps that look at what is on disk or installed, and begin nothing."""

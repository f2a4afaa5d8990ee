"""From a log of another trainer to a run record: what all formats share."""

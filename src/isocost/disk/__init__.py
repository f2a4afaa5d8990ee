"""Plain data on a disk: JSON files and their shapes, a cache, one writer per folder."""

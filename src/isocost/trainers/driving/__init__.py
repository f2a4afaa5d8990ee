"""Launching another trainer's runs, and writing its configuration: what all trainers share."""

"""Steps of a study whose runs are another trainer's: imported, or launched."""

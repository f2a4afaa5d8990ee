"""Plans, forecasts and audits. Importing any module of the planner registers the shapes of its files."""

from isocost.planner import schema as _schema  # noqa: F401 (registers by import)

"""Answers served to programs: an OpenAI-compatible address in front of any model, with a strategy for each request."""

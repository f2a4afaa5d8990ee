"""Text for people: words, the terminal, and the rows of a result."""

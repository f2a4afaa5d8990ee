"""One machine: a Llama-family decoder that writes, learns, and agrees with itself."""

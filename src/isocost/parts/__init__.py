"""Ready-made values for the seams: one file per seam, one function per way of filling it."""

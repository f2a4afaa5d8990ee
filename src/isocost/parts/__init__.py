"""Values for the seams that two methods or more use, one file for each seam."""

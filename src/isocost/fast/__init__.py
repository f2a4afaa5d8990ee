"""Second forms, which are only faster: whole waves, rollouts as arrays, slopes of losses, lines of the journal."""

"""A study: profile, plan, pilot, fit, train, audit and report in one directory, each step can be rerun alone."""

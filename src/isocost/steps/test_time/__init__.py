"""Steps of a study of test-time strategies: profile, plan, answer, audit."""

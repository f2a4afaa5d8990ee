"""Small worlds whose policy is no language model: each brings an engine, a learner and a text of its own."""

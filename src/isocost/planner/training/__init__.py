"""The planner of policy training: rollouts per problem, problems per update, updates."""

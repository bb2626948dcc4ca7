"""Where rollouts branch."""

"""Train state, the jitted steps, the loops, Grain data and Orbax checkpoints."""

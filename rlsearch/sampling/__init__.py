"""Writing rollouts: cache slots, jitted decoding, the stop automaton, and growing trees from them."""

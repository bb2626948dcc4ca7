"""The forest of token trees that everything else handles: its type, building, checking, packing and reductions."""

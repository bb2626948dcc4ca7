"""What a run needs, found by compiling it for chips that are not there."""

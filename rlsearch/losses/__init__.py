"""The objective: importance ratio, clip, regulariser and reduction, each chosen on its own."""

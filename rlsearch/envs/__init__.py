"""Tasks: question sets, synthetic worlds, the action grammar and how observations are rendered."""

"""From `grades.json` to the gradebook that a school already uses, and what to hand out."""

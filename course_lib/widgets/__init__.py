"""Interactive figures, one module a subject. The drawing itself is matplotlib, so each has a static form too."""

"""One module for each command of `course`; each defines `command`, a click command, and imports late what is heavy."""

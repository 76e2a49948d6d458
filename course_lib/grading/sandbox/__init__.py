"""Runs strangers' notebooks: nothing that they do reaches the grader, the machine or another submission.

- `box`: one bubblewrap a worker; what it may see.
- `zygote`: the warm parent, a separate program that has imported torch and holds no secrets.
- `worker`: runs a submission's cells and answers the grader's questions.
- `wire`: length-limited messages between the two.
- `session`: the grader's end: asks, waits, and says how a worker died.
"""

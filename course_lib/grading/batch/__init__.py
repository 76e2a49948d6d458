"""Grades many notebooks that strangers wrote, and writes what instructors need.

- `collect`: files, folders and archives become submissions with a student's name.
- `reading`: any bytes become cells, or a reason why not.
- `selection`: which cells to run, and where each answer stands.
- `grader`: one submission, from bytes to points.
- `flags`: answers that look like the course's own.
- `run`: all of them, on several processes or a Dask cluster, so that an interrupted run goes on where it stopped.
- `results`, `report`, `summary`: what is written.
"""

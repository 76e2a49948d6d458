"""Which exercise a learner means by the object or the name that they give."""

from typing import Any

from course_lib.grading.assess import find_exercise
from course_lib.grading.exercise import Exercise


class UnknownExercise(LookupError):
    """Neither the object nor its names belong to an exercise; the message says what to do."""


def _exercises_by_function() -> dict[str, Exercise]:
    from course_lib.exercises import SYLLABUS  # the only way from grading to the exercises

    return {name: ex for lesson in SYLLABUS for ex in lesson.exercises for name in (*ex.functions, ex.name)}


def resolve(thing: Any, namespace: dict[str, Any]) -> tuple[Exercise, str]:
    """The exercise, and the name by which the object was found.

    An object's own name comes first; then, for lambdas, partials and callable objects, the variables that
    hold it.

    Raises:
        UnknownExercise: nothing fits.
    """
    known = _exercises_by_function()
    if isinstance(thing, str):
        if thing in known:
            return known[thing], thing
        try:
            find_exercise(thing)
        except KeyError as error:
            raise UnknownExercise(error.args[0]) from None
    own = getattr(thing, "__name__", None)
    if isinstance(own, str) and own in known:
        return known[own], own
    for name, value in namespace.items():
        if value is thing and name in known:
            return known[name], name
    shown = own if isinstance(own, str) else f"an object of type {type(thing).__name__}"
    raise UnknownExercise(
        f"check must get a function that carries an exercise's name; got {shown}. "
        "Keep the name of the stub, or give it: check('ulp')."
    )


def collect(things: tuple[Any, ...], namespace: dict[str, Any]) -> tuple[Exercise, Any]:
    """The exercise and the solution for it: one object, or a tuple in the exercise's own order.

    Functions that were not given are looked up by name where the call was made.
    """
    if not things:
        raise UnknownExercise("check must get a function; got nothing. Write, for example, check(to_gib).")
    found: dict[str, Any] = {}
    exercise: Exercise | None = None
    for thing in things:
        this, name = resolve(thing, namespace)
        if exercise is not None and this.name != exercise.name:
            raise UnknownExercise(f"check takes one exercise at a time; got {exercise.name} and {this.name}.")
        exercise = this
        found[name] = namespace.get(name) if isinstance(thing, str) else thing
    assert exercise is not None
    parts = []
    for name in exercise.functions:
        part = found.get(name, found.get(exercise.name) if len(exercise.functions) == 1 else None)
        part = namespace.get(name) if part is None else part
        if part is None:
            raise UnknownExercise(f"check needs {name}, which is not defined yet. Run the cell that defines it first.")
        parts.append(part)
    return exercise, parts[0] if len(parts) == 1 else tuple(parts)

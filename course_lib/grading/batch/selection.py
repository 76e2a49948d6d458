"""Which cells of a submission run, and where each answer stands.

An answer is found by nbgrader's metadata, then by the marker line ``# exercise: name``, then by the name that a cell
defines; so it is found after Colab and copy-and-paste have lost the metadata, in another cell, or in another order.
"""

import ast
import difflib
import functools
import re
import symtable
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.data_files import PACKAGE
from course_lib.grading.batch.reading import Cell, Reading, read
from course_lib.grading.exercise import Lesson

MARKER = re.compile(r"^\s*#\s*exercise:\s*(\w+)\s*$", re.MULTILINE)
_DEFINITION = re.compile(r"^\s*(?:def|class)\s+(\w+)", re.MULTILINE)
_MAGIC = re.compile(r"^(\s*)[%!?].*$", re.MULTILINE)
_COURSE_WORDS = {"check", "hint", "solution", "progress"}
_ALIKE = 0.7
_MAX_COMPARED_CHARS = 5_000


@dataclass(frozen=True)
class Answer:
    """Where an exercise's answer stands.

    Attributes:
        cells: places of the cells that define it and are no stub; the last one counts.
        has_cell: there is a cell for it, be it only the stub.
    """

    cells: tuple[int, ...] = ()
    has_cell: bool = False


@dataclass(frozen=True)
class Selection:
    """What to run of a submission.

    Attributes:
        lesson: which lesson it is.
        cells: (place, source), in order; the course's own first cell has place -1.
        answers: by exercise.
        problems: what should be repaired, a sentence each.
        notes: what was mended in reading, a sentence each.
    """

    lesson: Lesson
    cells: tuple[tuple[int, str], ...]
    answers: dict[str, Answer]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class NotOfTheCourse(ValueError):
    """No exercise of the course is in the notebook."""


@dataclass
class _Parsed:
    cell: Cell
    source: str
    tree: ast.Module | None
    defined: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)  # what it defines by itself, not by `solved_or_reference`

    def __post_init__(self) -> None:
        if self.tree is None:
            self.defined = self.answers = set(_DEFINITION.findall(self.source))
        else:
            self.defined = _defined(self.tree)
            own = [node for node in self.tree.body if not _is_stand_in(node)]
            self.answers = set().union(*(_bound(node) for node in own))

    @functools.cached_property
    def used(self) -> set[str]:
        """Names that it takes from the notebook."""
        return _global_names(self.tree) if self.tree is not None else set()


@functools.lru_cache(maxsize=512)  # most cells of a submission are the course's own, the same in each
def parse(source: str) -> ast.Module | None:
    """The cell's tree, magics left out; None when it is no Python. Not to be changed: it is shared."""
    for text in (source, _MAGIC.sub(r"\1pass", source)):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    first = source.lstrip().split("\n", 1)[0]
    if first.startswith("%%"):
        return parse(source.lstrip().partition("\n")[2]) if first.split()[0] in _PYTHON_MAGICS else ast.parse("")
    return None


_PYTHON_MAGICS = {"%%time", "%%timeit", "%%capture", "%%prun", "%%python", "%%python3"}


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        names |= _bound(node)
    return names


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    names: set[str] = set()
    for block in ("body", "orelse", "finalbody", "handlers"):
        for inner in getattr(node, block, []):
            names |= _bound(inner)
    return names


def _global_names(tree: ast.Module) -> set[str]:
    """Names that the cell reads from the notebook: neither parameters nor variables of its functions."""
    try:
        todo = [symtable.symtable(ast.unparse(tree), "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    while todo:
        table = todo.pop()
        is_top = table.get_type() == "module"
        names |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (is_top or symbol.is_global())
        }
        todo += table.get_children()
    return names


def _is_stand_in(node: ast.stmt) -> bool:
    """Whether it is ``ulp = solved_or_reference(ulp)``."""
    value = getattr(node, "value", None)
    function = value.func if isinstance(value, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", None)) == "solved_or_reference"


def is_stub(tree: ast.Module, names: tuple[str, ...]) -> bool:
    """Whether every one of the names that the cell defines still only raises NotImplementedError."""
    found = [node for node in tree.body if getattr(node, "name", None) in names]
    others = [node for node in tree.body if node not in found and _bound(node) & set(names)]
    return bool(found) and not others and all(_only_raises(node) for node in found)


def _only_raises(node: ast.stmt) -> bool:
    body = [inner for inner in getattr(node, "body", []) if not _is_text(inner)]
    if isinstance(node, ast.ClassDef):
        methods = [inner for inner in body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)]
        return bool(methods) and all(_only_raises(method) for method in methods)
    return bool(body) and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.dump(body[0])


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_course_call(tree: ast.Module) -> bool:
    """Whether the cell does nothing but `check(…)` and the like."""
    return bool(tree.body) and all(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in _COURSE_WORDS
        for node in tree.body
    )


def released_notebook(lesson: Lesson) -> Path:
    """The lesson's notebook as the course hands it out."""
    return PACKAGE.parent / "notebooks" / f"{lesson.slug}.ipynb"


@functools.lru_cache(maxsize=32)
def _released(path: Path) -> tuple[Cell, ...]:
    try:
        return read(path.read_bytes()).cells
    except (OSError, ValueError):
        return ()


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _lesson_of(parsed: list[_Parsed], cells: tuple[Cell, ...], syllabus: tuple[Lesson, ...], name: str) -> Lesson:
    marked = [name for cell in cells for name in (cell.grade_id, *MARKER.findall(cell.source))]

    def weight(lesson: Lesson) -> tuple[int, bool]:
        names = {exercise.name for exercise in lesson.exercises}
        functions = {function for exercise in lesson.exercises for function in exercise.functions}
        ours = {cell.identity for cell in _released(released_notebook(lesson)) if cell.identity}
        total = sum(3 * (name in names) for name in marked) + sum(cell.identity in ours for cell in cells)
        total += sum(2 * len(functions & item.answers) for item in parsed)
        return total, lesson.slug in name

    best = max(syllabus, key=weight, default=None)
    if best is None or weight(best) == (0, False):
        raise NotOfTheCourse("the notebook holds no exercise of the course. Ask for the right file.")
    return best


def _join_split(cells: list[Cell], notes: list[str]) -> list[_Parsed]:
    """Cells as trees; a cell cut in two by accident, neither half of which is Python, is one again."""
    parsed: list[_Parsed] = []
    position = 0
    while position < len(cells):
        cell = cells[position]
        source, tree, taken = cell.source, parse(cell.source), 1
        while tree is None and taken < 4 and position + taken < len(cells):
            following = cells[position + taken]
            if parse(following.source) is not None and not following.source.startswith((" ", "\t")):
                break
            source = f"{source}\n{following.source}"
            taken += 1
            tree = parse(source)
        if tree is None:
            source, taken = cell.source, 1
        elif taken > 1:
            notes.append(f"cells {cell.index + 1} to {cells[position + taken - 1].index + 1} were one and are joined")
        elif (rest := _continued(cells, position, source)) is not None:
            source, taken = rest, 2
            tree = parse(source)
            notes.append(f"cell {cell.index + 2} goes on where cell {cell.index + 1} ends; they are joined")
        parsed.append(_Parsed(cell, source, tree))
        position += taken
    return parsed


def _continued(cells: list[Cell], position: int, source: str) -> str | None:
    """The cell with the next one, where the next is the indented rest of a function."""
    if position + 1 >= len(cells):
        return None
    following = cells[position + 1].source
    lines = [line for line in following.splitlines() if line.strip()]
    last = [line for line in source.splitlines() if line.strip()]
    if not lines or not last or not lines[0].startswith((" ", "\t")) or not last[-1].startswith((" ", "\t")):
        return None
    joined = f"{source}\n{following}"
    return joined if parse(joined) is not None and parse(following) is None else None


def select(reading: Reading, syllabus: tuple[Lesson, ...], name: str = "") -> Selection:
    """Decides what runs.

    Args:
        reading: the submission.
        syllabus: the course's lessons.
        name: the file's name, which decides between lessons when nothing else does.
    Raises:
        NotOfTheCourse: it holds none of the course's exercises.
    """
    notes: list[str] = []
    code = [cell for cell in reading.cells if cell.kind == "code" and cell.source.strip()]
    parsed = _join_split(code, notes)
    lesson = _lesson_of(parsed, reading.cells, syllabus, name)
    released = _released(released_notebook(lesson))
    functions = {function: exercise.name for exercise in lesson.exercises for function in exercise.functions}
    parsed += _hidden_answers(reading, parsed, functions, notes)
    parsed.sort(key=lambda item: item.cell.index)

    answers: dict[str, Answer] = {}
    problems: list[str] = []
    stubs: set[int] = set()
    for exercise in lesson.exercises:
        names = exercise.functions
        own = [item for item in parsed if _belongs(item, exercise.name, names)]
        holding = [item for item in own if item.answers & set(names)]
        kept = [item for item in holding if item.tree is None or not is_stub(item.tree, names)]
        stubs |= {item.cell.index for item in holding if item not in kept} if kept else set()
        answers[exercise.name] = Answer(tuple(item.cell.index for item in kept), bool(own))
        if not own:
            (notes if exercise.bonus else problems).append(f"{exercise.name}: no cell of the notebook defines it")
        elif not holding:
            others = sorted(set().union(*(item.defined for item in own)))
            shown = f"it defines {', '.join(others[:5])}" if others else "it defines nothing"
            problems.append(f"{exercise.name}: the cell for it does not define {' and '.join(names)}; {shown}")
        if len(kept) > 1 and len(names) == 1:
            places = ", ".join(str(item.cell.index + 1) for item in kept)
            notes.append(f"{exercise.name} is defined in cells {places}; the last that is right counts")
        for item in own:
            if item.tree is None:
                problems.append(f"{exercise.name}: cell {item.cell.index + 1} is not valid Python")
    chosen = _chosen(parsed, stubs, released, functions)
    first = [(-1, cell.source) for cell in released if cell.kind == "code"][:1]
    cells = tuple(first + [(item.cell.index, item.source) for item in chosen])
    return Selection(lesson, cells, answers, (*reading.problems, *problems), tuple(notes))


def _belongs(item: _Parsed, exercise: str, names: tuple[str, ...]) -> bool:
    return bool(item.cell.grade_id == exercise or exercise in MARKER.findall(item.source) or item.answers & set(names))


def _hidden_answers(
    reading: Reading, parsed: list[_Parsed], functions: dict[str, str], notes: list[str]
) -> list[_Parsed]:
    """Answers in cells that were turned into text by accident, where no code cell has them."""
    have = set().union(*(item.answers for item in parsed)) if parsed else set()
    found = []
    for cell in reading.cells:
        if cell.kind == "code" or not MARKER.search(cell.source):
            continue
        item = _Parsed(cell, cell.source, parse(cell.source))
        if item.tree is not None and item.answers & set(functions) - have:
            notes.append(f"cell {cell.index + 1} was a {cell.kind} cell and is taken as code")
            found.append(item)
    return found


def _chosen(
    parsed: list[_Parsed], stubs: set[int], released: tuple[Cell, ...], functions: dict[str, str]
) -> list[_Parsed]:
    """Answers and the learner's own cells; of the course's demonstrations only those that they use."""
    ours = {_plain(cell.source): cell for cell in released if cell.kind == "code"}
    identities = {cell.identity for cell in released if cell.identity and cell.kind == "code"}
    first = next((cell for cell in released if cell.kind == "code"), None)
    run: list[_Parsed] = []
    demonstrations: list[_Parsed] = []
    for item in parsed:
        cell = item.cell
        if cell.index in stubs or (item.tree is not None and _is_course_call(item.tree)):
            continue
        if item.answers & set(functions) or MARKER.search(item.source) or cell.grade_id in functions.values():
            run.append(item)
        elif first is not None and _plain(item.source) == _plain(first.source):
            continue  # the course's own first cell runs anyway
        elif "bootstrap" in cell.tags or (first is not None and cell.identity and cell.identity == first.identity):
            run.append(item)
        elif _plain(item.source) in ours or cell.identity in identities or _resembles(item.source, ours):
            demonstrations.append(item)
        else:
            run.append(item)
    have = set().union(*(item.defined for item in run), _defined(parse(first.source) or ast.parse("")) if first else ())
    need = set().union(*(item.used for item in run)) - have
    while True:
        wanted = [item for item in demonstrations if item.defined & need]
        if not wanted:
            return sorted(run, key=lambda item: item.cell.index)
        for item in wanted:
            demonstrations.remove(item)
            run.append(item)
            have |= item.defined
        need = set().union(*(item.used for item in run)) - have


def _resembles(source: str, ours: dict[str, Cell]) -> bool:
    """Whether it is one of the course's demonstrations with small changes, its id lost."""
    plain = _plain(source)
    if len(plain) > _MAX_COMPARED_CHARS:
        return False
    for known in ours:
        matcher = difflib.SequenceMatcher(None, plain, known, autojunk=False)
        if matcher.real_quick_ratio() > _ALIKE and matcher.quick_ratio() > _ALIKE and matcher.ratio() > _ALIKE:
            return len(known) > 80
    return False

"""Answers that look like the course's own. A flag costs no points: it tells an instructor where to look."""

import ast
import functools
import inspect
import textwrap
from typing import Any

from course_lib.grading.exercise import Exercise

IMPORTED = "uses the course's own answer"
SAME_TEXT = "has the same code as the course's own answer"
_MIN_NODES = 80  # below that two people write the same line


class _Bare(ast.NodeTransformer):
    """Drops what does not matter: docstrings, annotations."""

    def _visit_definition(self, node: Any) -> Any:
        self.generic_visit(node)
        if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        if hasattr(node, "returns"):
            node.returns = None
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_definition

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return ast.Assign([node.target], self.visit(node.value), lineno=0)


def _shape(node: ast.AST) -> str:
    return ast.dump(_Bare().visit(node))


@functools.lru_cache(maxsize=256)
def _reference_shapes(exercise: Exercise) -> dict[str, str]:
    shapes = {}
    for name, reference in zip(exercise.functions, exercise.references, strict=False):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(reference)))
        except (OSError, TypeError, SyntaxError):
            continue
        bare = _Bare().visit(tree.body[0])
        if sum(1 for _ in ast.walk(bare)) >= _MIN_NODES:
            shapes[name] = ast.dump(bare)
    return shapes


def static_flags(exercise: Exercise, sources: list[str]) -> list[str]:
    """What the text of a submission's cells gives away.

    Args:
        exercise: one exercise.
        sources: the cells that ran, without the course's own first cell.
    """
    modules = {getattr(reference, "__module__", "") for reference in exercise.references}
    names = {getattr(reference, "__name__", "") for reference in exercise.references} | set(exercise.functions)
    flags = set()
    for source in sources:
        if not any(name in source for name in names):
            continue
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if _imports(tree, modules, names):
            flags.add(IMPORTED)
        shapes = _reference_shapes(exercise) if _is_hashable(exercise) else {}
        for node in ast.walk(tree):
            shape = shapes.get(getattr(node, "name", ""))
            if shape is not None and _same(node, shape):
                flags.add(SAME_TEXT)
    return sorted(flags)


def _is_hashable(exercise: Exercise) -> bool:
    try:
        hash(exercise)
    except TypeError:
        return False
    return True


def _same(node: ast.AST, shape: str) -> bool:
    try:
        return _shape(node) == shape
    except RecursionError:
        return False


def _imports(tree: ast.AST, modules: set[str], names: set[str]) -> bool:
    aliases = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module in modules and any(alias.name in names or alias.name == "*" for alias in node.names):
                return True
            full = {f"{node.module}.{alias.name}": alias.asname or alias.name for alias in node.names}
            aliases |= {short for module, short in full.items() if module in modules}
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name for alias in node.names if alias.name in modules}
    return any(
        isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) in aliases
        for node in ast.walk(tree)
    )

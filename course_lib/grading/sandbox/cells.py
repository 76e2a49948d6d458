"""Runs the cells of a notebook as IPython would, as far as honest notebooks need it."""

import ast
import asyncio
import builtins
import contextlib
import inspect
import io
import linecache
import sys
import types
import warnings
from typing import Any

from course_lib.grading.assess import learner_line
from course_lib.grading.observation import ExceptionRecord, record_exception

_MAX_PRINTED_CHARS = 100_000


class _Printed(io.StringIO):
    """What cells print, up to a limit; the rest is dropped, as if the paper had run out."""

    def write(self, text: str) -> int:
        if self.tell() < _MAX_PRINTED_CHARS:
            super().write(text[:_MAX_PRINTED_CHARS])
        return len(text)

    def isatty(self) -> bool:
        return False


class Shell:
    """Stands in for IPython's shell: time magics run their code, files are written, the rest does nothing."""

    def __init__(self, notebook: "Notebook") -> None:
        self._notebook = notebook
        self.user_ns = notebook.names

    def run_line_magic(self, name: str, line: str, *_: Any, **__: Any) -> Any:
        if name in ("time", "prun"):
            return self._notebook.execute(line)
        return None

    def run_cell_magic(self, name: str, line: str, body: str, *_: Any, **__: Any) -> Any:
        if name in ("time", "timeit", "capture", "prun", "python", "python3"):
            return self._notebook.execute(body)
        if name == "writefile":
            with open(line.split()[-1], "w", encoding="utf-8") as file:
                file.write(body)
        return None

    magic = run_line_magic

    def system(self, *_: Any, **__: Any) -> None:
        return None

    def getoutput(self, *_: Any, **__: Any) -> list[str]:
        return []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Shell._Anything()

    class _Anything(list):
        """Takes every call and every attribute, and is empty."""

        def __call__(self, *_: Any, **__: Any) -> "Shell._Anything":
            return self

        def __getattr__(self, name: str) -> "Shell._Anything":
            if name.startswith("__"):
                raise AttributeError(name)
            return self


class Notebook:
    """The namespace in which a submission's cells run."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        self.names: dict[str, Any] = module.__dict__
        sys.modules["__main__"] = module
        shell = Shell(self)
        self.names.update(
            __builtins__=builtins, get_ipython=lambda: shell, display=lambda *_, **__: None, In=[], Out={}, _=None
        )
        self._label = "<cell>"

    def run(self, index: int, source: str) -> ExceptionRecord | None:
        """Runs a cell; what it raised, or None."""
        self._label = f"<cell {index + 1}>"
        printed = _Printed()
        try:
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                self.execute(plain_python(source))
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: the next cell runs, as in Jupyter
            return record_exception(error, learner_line(error))
        finally:
            plots = sys.modules.get("matplotlib.pyplot")
            if plots is not None:
                with contextlib.suppress(BaseException):
                    plots.close("all")
        return None

    def execute(self, source: str) -> Any:
        """Runs Python text in the namespace; a last expression is its value, `await` may stand at top level."""
        linecache.cache[self._label] = (len(source), None, source.splitlines(keepends=True), self._label)
        code = compile(source, self._label, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            return asyncio.run(eval(code, self.names))
        return exec(code, self.names)


def plain_python(source: str) -> str:
    """A cell as Python: magics, shell lines and question marks become calls of the stand-in shell."""
    try:
        ast.parse(source)
        return source
    except (SyntaxError, ValueError):
        from IPython.core.inputtransformer2 import TransformerManager

        return TransformerManager().transform_cell(source)

"""Finds the submissions in files, folders and archives from a learning platform, and who each is from."""

import io
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from course_lib.grading.batch.reading import MAX_BYTES, Unreadable

_MOODLE = re.compile(r"^(?P<student>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)")
_CANVAS = re.compile(r"^(?P<student>[^\W\d_][^_]*?)(?:_LATE)?_(?P<id>\d+)_(?:question_\d+_)?\d+_.+")
_IGNORED_FOLDERS = {".ipynb_checkpoints", "__MACOSX", "__pycache__", ".git"}
_MAYBE = (".json", ".txt")
_OTHER = (".pdf", ".docx", ".doc", ".odt", ".rtf", ".html", ".htm", ".py", ".rar", ".7z", ".gz", ".tar", ".png", ".jpg")
_MAX_MEMBERS = 50_000
_MAX_NESTED_BYTES = 1 << 30
_MAX_ID_CHARS = 80


@dataclass(frozen=True)
class Submission:
    """One notebook, or the lack of one.

    Attributes:
        id: names the report; unique in a run, and fit for a file name.
        student: who it is from.
        number: the platform's number for the student or the submission, or ``""``.
        source: the path as an instructor would say it, ``folder/file`` or ``archive.zip/folder/file``.
        place: the file on disk, then members of archives inside archives.
        problem: why there is no notebook, or ``""``.
    """

    id: str
    student: str
    number: str
    source: str
    place: tuple[str, ...] = ()
    problem: str = ""

    @property
    def file_name(self) -> str:
        return self.source.rpartition("/")[2]

    def load(self) -> bytes:
        """The notebook's bytes.

        Raises:
            Unreadable: there is none, or it cannot be taken out of its archive.
        """
        if self.problem:
            raise Unreadable(self.problem)
        path, *members = self.place
        try:
            if not members:
                if os.path.getsize(path) > MAX_BYTES:
                    raise Unreadable(
                        f"the file has {os.path.getsize(path) // 2**20} MiB; at most {MAX_BYTES // 2**20} are read. "
                        "Ask for it with all outputs cleared."
                    )
                return Path(path).read_bytes()
            archive: zipfile.ZipFile = zipfile.ZipFile(path)
            for depth, member in enumerate(members):
                is_last = depth == len(members) - 1
                data = _member(archive, member, MAX_BYTES if is_last else _MAX_NESTED_BYTES)
                archive.close()
                if is_last:
                    return data
                archive = zipfile.ZipFile(io.BytesIO(data))
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
            raise Unreadable(f"the file cannot be read: {error}. Ask for it again.") from None
        raise Unreadable("the archive holds no notebook.")


def _member(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    """A member's bytes; the size that an archive promises is not believed."""
    with archive.open(name) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise Unreadable(f"the file has more than {max_bytes // 2**20} MiB unpacked. Ask for it with outputs cleared.")
    return data


@dataclass(frozen=True)
class _File:
    parts: tuple[str, ...]  # below what was given on the command line
    place: tuple[str, ...]
    problem: str = ""

    @property
    def suffix(self) -> str:
        return os.path.splitext(self.parts[-1])[1].lower()


def collect(paths: Iterable[Path], *, pattern: str | None = None, slugs: Iterable[str] = ()) -> list[Submission]:
    """Every submission below the paths, in an order that does not depend on the machine.

    Args:
        paths: notebooks, folders, zip archives.
        pattern: a regular expression with a group ``student`` (and perhaps ``id``), searched in the path of each
            file below the folder or archive; default: the namings of Moodle, Canvas and nbgrader, then the folder's
            name, then the file's.
        slugs: names of the course's notebooks: a file called so does not say who it is from.
    Raises:
        ValueError: a path does not exist, the pattern is none, or nothing is found.
    """
    compiled = _compile(pattern)
    known = tuple(slugs)
    found: list[Submission] = []
    for path in paths:
        if not path.exists():
            raise ValueError(f"path must exist; got {path}.")
        files = sorted(_files(path), key=lambda file: file.parts)
        found += _submissions(path, files, compiled, known)
    if not found:
        raise ValueError("paths must hold notebooks; found none. Give folders, .ipynb files or .zip archives.")
    return _with_unique_ids(found)


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern must be a regular expression; got {pattern!r}: {error}.") from None
    if "student" not in compiled.groupindex:
        raise ValueError(f"pattern must have a group (?P<student>…); got {pattern!r}.")
    return compiled


def _files(path: Path) -> Iterator[_File]:
    if path.is_file():
        if path.suffix.lower() == ".zip":
            yield from _in_archive(path, (), (str(path),))
        else:
            yield _File((path.name,), (str(path),))
        return
    root = path.resolve()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _IGNORED_FOLDERS and not name.startswith("."))
        below = Path(folder).relative_to(path).parts
        for name in sorted(names):
            full = Path(folder, name)
            if name.startswith("."):
                continue
            if full.is_symlink() and root not in full.resolve().parents:
                yield _File((*below, name), (), "the file is a link to a place outside the submissions.")
            elif full.suffix.lower() == ".zip":
                yield from _in_archive(full, (*below, full.stem), (str(full),))
            else:
                yield _File((*below, name), (str(full),))
        if not names and not folders and below:
            yield _File((*below, ""), (), "the folder is empty.")


def _in_archive(path: Path, above: tuple[str, ...], place: tuple[str, ...]) -> Iterator[_File]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _members(archive, above, place)
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        yield _File((*above, path.name), (), f"the archive cannot be read: {error}. Ask for it again.")


def _members(archive: zipfile.ZipFile, above: tuple[str, ...], place: tuple[str, ...]) -> Iterator[_File]:
    for info in archive.infolist()[:_MAX_MEMBERS]:
        parts = tuple(part for part in info.filename.replace("\\", "/").split("/") if part not in ("", ".", ".."))
        if not parts or info.is_dir() or any(part in _IGNORED_FOLDERS or part.startswith(".") for part in parts):
            continue
        if parts[-1].lower().endswith(".zip") and len(place) < 3:
            try:
                nested = zipfile.ZipFile(io.BytesIO(_member(archive, info.filename, _MAX_NESTED_BYTES)))
                inner = list(_members(nested, (*above, *parts[:-1], parts[-1][:-4]), (*place, info.filename)))
            except (zipfile.BadZipFile, Unreadable, RuntimeError, NotImplementedError, EOFError, OSError) as error:
                inner = [_File((*above, *parts), (), f"the archive cannot be read: {error}. Ask for it again.")]
            yield from inner
        else:
            yield _File((*above, *parts), (*place, info.filename))


def _is_notebook(file: _File) -> bool:
    if file.suffix == ".ipynb":
        return True
    if file.suffix not in _MAYBE or not file.place:
        return False
    try:
        head = Submission("", "", "", file.parts[-1], file.place).load()
    except Unreadable:
        return False
    return head.lstrip()[:1] == b"{" and b'"cell_type"' in head


def _submissions(
    root: Path, files: list[_File], pattern: re.Pattern[str] | None, slugs: tuple[str, ...]
) -> list[Submission]:
    shared = _shared_folders(files, slugs)
    with_notebook: list[tuple[_File, tuple[str, str]]] = []
    without: dict[tuple[str, str], list[_File]] = {}
    for file in files:
        who = _who(root, file, file.parts[shared:], pattern, slugs)
        if _is_notebook(file):
            with_notebook.append((file, who))
        elif file.problem or file.suffix in _OTHER or file.suffix in _MAYBE or len(file.parts) - shared > 1:
            without.setdefault(who, []).append(file)
    have = {who for _, who in with_notebook}
    found = []
    for file, (student, number) in with_notebook:
        source = "/".join((root.name, *file.parts)) if root.name not in (*file.parts[:1], "") else "/".join(file.parts)
        found.append(Submission("", student, number, source, file.place, file.problem))
    for (student, number), others in without.items():
        if (student, number) in have:
            continue
        names = ", ".join(file.parts[-1] for file in others[:5] if file.parts[-1])
        problem = next((file.problem for file in others if file.problem), "")
        problem = problem or f"no notebook, only {names}. Ask for the .ipynb file."
        found.append(Submission("", student, number, "/".join((root.name, *others[0].parts)), (), problem))
    return sorted(found, key=lambda submission: submission.source)


def _shared_folders(files: list[_File], slugs: tuple[str, ...]) -> int:
    """How many leading folders say nothing, since all files lie in them and are not named like the course's."""
    folders = [file.parts[:-1] for file in files]
    shared = 0
    while folders and all(len(parts) > shared for parts in folders) and len({parts[shared] for parts in folders}) == 1:
        shared += 1
    if len(files) < 2 or any(_bare(file.parts[-1], slugs) == "" for file in files if len(file.parts) == shared + 1):
        return max(shared - 1, 0) if len(files) >= 2 else 0
    return shared


def _bare(name: str, slugs: tuple[str, ...]) -> str:
    """The file's name without the course's own name for the notebook, copy marks and endings."""
    endings = "|".join(re.escape(ending) for ending in (".ipynb", ".zip", *_MAYBE, *_OTHER))
    stem = re.sub(rf"(\.ipynb)?({endings})?$", "", name, flags=re.IGNORECASE)
    for slug in slugs:
        stem = stem.replace(slug, "")
    stem = re.sub(r"(^Copy[_ ]of[_ ])|([-_ ]?Copy\d*$)|(\s*\(\d+\)$)|(-Copy\d+)", "", stem)
    return stem.strip(" -_.")


def _who(
    root: Path, file: _File, parts: tuple[str, ...], pattern: re.Pattern[str] | None, slugs: tuple[str, ...]
) -> tuple[str, str]:
    path = "/".join(file.parts)
    if pattern is not None and (match := pattern.search(path)):
        return match["student"], (match.groupdict().get("id") or "")
    for part in file.parts:
        for naming in (_MOODLE, _CANVAS):
            if match := naming.match(part):
                return match["student"].strip(), match["id"]
    if len(parts) > 1:
        return parts[0], ""
    bare = _bare(parts[-1], slugs) if parts else ""
    if bare:
        return bare, ""
    above = root.resolve() if root.is_dir() else root.resolve().parent
    return (file.parts[-2] if len(file.parts) > 1 else above.name or "unknown"), ""


def _slug(text: str) -> str:
    kept = "".join(char if char.isalnum() or char in "-_" else "_" for char in text)
    return re.sub(r"_+", "_", kept).strip("_")[:_MAX_ID_CHARS] or "submission"


def _with_unique_ids(found: list[Submission]) -> list[Submission]:
    taken: set[str] = set()
    named = []
    for submission in found:
        stem = re.sub(r"\.ipynb$", "", submission.file_name)
        base = _slug(submission.student if stem == submission.student else f"{submission.student}-{stem}")
        identity, count = base, 1
        while identity.casefold() in taken:
            count += 1
            identity = f"{base}-{count}"
        taken.add(identity.casefold())
        named.append(replace(submission, id=identity))
    return named

"""Who a submission is from: namings of learning platforms, folders, archives, links and bombs."""

import io
import zipfile
from pathlib import Path

import pytest

from course_lib.grading.batch.collect import collect
from course_lib.grading.batch.reading import Unreadable
from tests.batch.damaged import PLAIN

SLUGS = ("01_floating_point_formats", "02_loss_scaling")


def put(root: Path, *names: str, data: bytes = PLAIN) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def students(*paths: Path, pattern: str | None = None) -> list[tuple[str, str]]:
    return [(one.student, one.number) for one in collect(paths, pattern=pattern, slugs=SLUGS)]


def test_file_names_are_students(tmp_path: Path) -> None:
    put(tmp_path, "alice.ipynb", "Bob Müller.ipynb", "陈.ipynb", ".hidden.ipynb", ".ipynb_checkpoints/alice.ipynb")
    assert [name for name, _ in students(tmp_path)] == ["Bob Müller", "alice", "陈"]


def test_folders_are_students_as_nbgrader_has_them(tmp_path: Path) -> None:
    put(tmp_path, *(f"{name}/{slug}/{slug}.ipynb" for name in ("ada", "bo") for slug in SLUGS))
    assert [name for name, _ in students(tmp_path)] == ["ada", "ada", "bo", "bo"]


def test_one_student_with_the_courses_own_file_names(tmp_path: Path) -> None:
    put(tmp_path / "ada", *(f"{slug}.ipynb" for slug in SLUGS))
    assert [name for name, _ in students(tmp_path / "ada")] == ["ada", "ada"]
    assert [name for name, _ in students(tmp_path)] == ["ada", "ada"]


def test_moodle_and_canvas_names_carry_numbers(tmp_path: Path) -> None:
    put(tmp_path / "m", "Jane Doe_1234_assignsubmission_file_/x.ipynb", "J. Ü_77_assignsubmission_file/y.ipynb")
    put(tmp_path / "c", "doejane_12_345_homework.ipynb", "roe_LATE_13_346_a_b.ipynb")
    assert sorted(students(tmp_path / "m")) == [("J. Ü", "77"), ("Jane Doe", "1234")]
    assert sorted(students(tmp_path / "c")) == [("doejane", "12"), ("roe", "13")]


def test_the_course_name_and_copy_marks_are_no_names(tmp_path: Path) -> None:
    put(tmp_path, "01_floating_point_formats_ada.ipynb", "Copy of bo (1).ipynb", "cy-Copy1.ipynb")
    assert sorted(name for name, _ in students(tmp_path)) == ["ada", "bo", "cy"]


def test_a_pattern_decides(tmp_path: Path) -> None:
    put(tmp_path, "2026/hw1-ada-v2.ipynb", "2026/hw1-bo-v1.ipynb")
    assert students(tmp_path, pattern=r"hw1-(?P<student>\w+)-v(?P<id>\d)") == [("ada", "2"), ("bo", "1")]
    for bad in ("(", "no group"):
        with pytest.raises(ValueError, match="pattern must"):
            students(tmp_path, pattern=bad)


def test_archives_and_archives_inside(tmp_path: Path) -> None:
    inner = zipped({"work/notebook.ipynb": PLAIN, "work/data.csv": b"1"})
    files = {"ada.ipynb": PLAIN, "bo.zip": inner, "__MACOSX/._ada.ipynb": b"junk", "../../escape.ipynb": PLAIN}
    (tmp_path / "all.zip").write_bytes(zipped(files))
    found = collect([tmp_path / "all.zip"], slugs=SLUGS)
    assert sorted(one.student for one in found) == ["ada", "bo", "escape"]
    assert all(one.load() == PLAIN for one in found)


def test_a_folder_with_a_students_zip(tmp_path: Path) -> None:
    put(tmp_path, "ada.ipynb")
    (tmp_path / "bo.zip").write_bytes(zipped({"x.ipynb": PLAIN}))
    (tmp_path / "cy.zip").write_bytes(b"no archive")
    found = {one.student: one for one in collect([tmp_path], slugs=SLUGS)}
    assert sorted(found) == ["ada", "bo", "cy"]
    assert "archive cannot be read" in found["cy"].problem


def test_no_notebook_is_said_and_not_forgotten(tmp_path: Path) -> None:
    put(tmp_path, "ada/report.pdf", "ada/notes.txt", "bo/x.ipynb", "cy.docx", data=b"%PDF")
    put(tmp_path, "README.md", "grades.csv")
    (tmp_path / "dy").mkdir()
    found = {one.student: one.problem for one in collect([tmp_path], slugs=SLUGS)}
    assert sorted(found) == ["ada", "bo", "cy", "dy"]
    assert "only notes.txt, report.pdf" in found["ada"] and "cy.docx" in found["cy"] and "empty" in found["dy"]


def test_renamed_files_are_known_by_what_they_hold(tmp_path: Path) -> None:
    put(tmp_path, "ada.ipynb.txt", "bo.json", "cy.ipynb.json")
    assert [(one.student, one.problem) for one in collect([tmp_path])] == [("ada", ""), ("bo", ""), ("cy", "")]


def test_ids_are_unique_and_fit_for_files(tmp_path: Path) -> None:
    put(tmp_path, "a/x.ipynb", "A/x.ipynb", "b/../b/y.ipynb", "c, d/" + "z" * 200 + ".ipynb")
    ids = [one.id for one in collect([tmp_path])]
    assert len({identity.casefold() for identity in ids}) == len(ids) == 4
    assert all("/" not in identity and "," not in identity and len(identity) < 90 for identity in ids)


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.ipynb"
    secret.write_bytes(PLAIN)
    put(tmp_path / "in", "ada.ipynb")
    (tmp_path / "in" / "bo.ipynb").symlink_to(secret)
    problems = {one.student: one.problem for one in collect([tmp_path / "in"])}
    assert problems["ada"] == "" and "link" in problems["bo"]


def test_a_zip_bomb_stays_packed(tmp_path: Path) -> None:
    (tmp_path / "all.zip").write_bytes(zipped({"ada.ipynb": b" " * (260 * 1024 * 1024), "bo.ipynb": PLAIN}))
    found = {one.student: one for one in collect([tmp_path / "all.zip"])}
    with pytest.raises(Unreadable, match="unpacked"):
        found["ada"].load()
    assert found["bo"].load() == PLAIN


def test_nothing_to_grade_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found none"):
        collect([tmp_path])
    with pytest.raises(ValueError, match="must exist"):
        collect([tmp_path / "nowhere"])

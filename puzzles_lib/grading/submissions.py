"""Find out who handed in what, from folders and archives that are read as bytes, with limits.

No link is followed and nothing is unpacked to disk. A folder or a zip contains one of these:

- a folder per student (Moodle, Gradescope, nbgrader) or per attempt (Brightspace),
- files whose names begin with the student's name (Canvas, Moodle without folders), contain it (Blackboard)
  or end with it after the chapter's name,
- nothing but ``NN_topic.ipynb`` files, which all belong to one student.

A student's notebooks may be anywhere in it, also in the student's own zip, together with ``progress.json``.
"""

import hashlib
import io
import itertools
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading.asides import in_short

MOST_NOTEBOOK = 20 << 20  # bytes
MOST_ARCHIVE = 100 << 20  # bytes, of a student's own
MOST_READ = 40 << 20  # bytes of all notebooks of a student
MOST_UNPACKED = 100 << 20  # bytes of a student's archive that are unpacked, those of no use included
MOST_NOTEBOOKS = 100  # of a student
MOST_PROGRESS = 1 << 20  # bytes of a progress file
MOST_FILES = 5000  # of a student
MOST_MEMBERS = 300_000  # of a class's archive
DEEPEST = 10  # folders in folders
PROGRESS = "progress.json"  # how the name of a progress file ends

_CHAPTERS = "|".join(chapter.notebook.removesuffix(".ipynb") for chapter in CHAPTERS)
_COPY = r"(?:[-_ ]?(?:\(\d+\)|copy\d*|\d+))?\.ipynb$"
_COURSE_NAMES = (
    re.compile(rf"(?:^|[\W_])({_CHAPTERS})(?:[\W_]+(.*?))?{_COPY}", re.I),
    re.compile(rf"(?:^|[\W_])(\d\d_[a-z][a-z0-9_]*?)(){_COPY}", re.I),
)
_MOODLE = re.compile(r"(.+?)_assignsubmission_file(?:_|$)")
_CANVAS = re.compile(r"([^\W\d_]+)_(?:late_)?(\d+)_\d+_.+", re.I)
_CANVAS_LATE = re.compile(r"[^\W\d_]+_late_\d+_\d+_.+", re.I)
_BLACKBOARD = re.compile(r"(.+)_attempt_(\d{4}(?:-\d\d){5})(?:_(.*))?$")  # ASSIGNMENT_USER before it
_BRIGHTSPACE = re.compile(
    r"\d+-\d+ - (.+?) - ((?:\d{1,2} )?[^\W\d]+\.?,?(?: \d{1,2})?,? \d{4} \d{3,4}(?: ?[AP]M)?)(?: - (.+))?$"
)
_DAYS = ("%b %d %Y", "%B %d %Y", "%d %b %Y", "%d %B %Y")
_DATES = [f"{day} {time}" for day in _DAYS for time in ("%I%M %p", "%H%M")]
_MEMBER = b"PK\x01\x02"  # with which an archive's table begins each of its rows
_SKIPPED = {"__MACOSX", "__pycache__"}  # and what is hidden


class Unread(ValueError):
    """A file is not read. The message says why."""


@dataclass(frozen=True)
class _File:
    """A file in a folder or an archive. read: returns at most that many of its bytes, or raises Unread.

    Without ``read`` it is a student's folder, which may be empty.
    """

    path: PurePosixPath
    read: Callable[[int], bytes] | None


@dataclass(frozen=True)
class _Attempt:
    """The parts of a name from Blackboard or Brightspace. date: sorts by time; "" if its form is unknown."""

    student: str
    date: str
    name: str


@dataclass
class Submission:
    """What a student handed in. The notebooks are read when they are needed.

    anonymous: whether `read` gives the notebooks names that name nobody.
    progress: the bytes of the student's progress file after reading; empty if there is none.
    unread: after reading, why a notebook or an archive could not be read, by the file.
    handed_in: when, as ``2026-01-31T10:00:00`` in the platform's time zone; "" if no file name says it.
    marked_late: whether Canvas has put LATE into a file's name.
    """

    student: str
    handed_in: str = ""
    marked_late: bool = False
    anonymous: bool = False
    remarks: list[str] = field(default_factory=list)
    progress: bytes = b""
    unread: dict[str, str] = field(default_factory=dict)
    _files: list[tuple[str, Callable[[int], bytes]]] = field(default_factory=list)

    def read(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the notebooks by name, and remarks on what is not read."""
        found: dict[str, bytes] = {}
        remarks = list(self.remarks)
        labels = [label for label, _ in self._files]
        self.unread = {}
        for label, read in sorted(self._files, key=lambda file: file[0]):
            if len(found) >= MOST_NOTEBOOKS or sum(map(len, found.values())) > MOST_READ:
                reason = "not read, because the submission is too large"
                remarks.append(f"{label} and the files after it: {reason}")
                self.unread[label] = reason
                break
            try:
                if label.lower().endswith(".zip"):
                    data = read(MOST_ARCHIVE)
                    if data.count(_MEMBER) > MOST_FILES:  # count before zipfile makes an object per file
                        raise Unread(f"an archive of more than {MOST_FILES} files")
                    for file in _archive(io.BytesIO(data), label, remarks, MOST_FILES, MOST_UNPACKED):
                        labels.append(f"{label}/{file.path}")
                        self._add(file, found, remarks, label)
                elif label.lower().endswith(PROGRESS):
                    self.progress = read(MOST_PROGRESS)
                else:
                    found[label] = read(MOST_NOTEBOOK)
            except Unread as reason:
                self._not_read(label, str(reason), remarks)
            except Exception as error:  # a malicious file only affects its own student
                self._not_read(label, f"cannot be read ({type(error).__name__}: {error})", remarks)
        if not found:
            remarks.append("no notebook")
        if self.anonymous:
            names = _anonymous(labels)
            found = {names[label]: data for label, data in found.items()}
            for label in sorted(names, key=len, reverse=True):
                remarks = [remark.replace(label, names[label]) for remark in remarks]
                self.unread = {
                    names.get(file, file): why.replace(label, names[label])
                    for file, why in self.unread.items()
                }
        return found, in_short(remarks)

    def _not_read(self, label: str, reason: str, remarks: list[str]) -> None:
        """Note why a file is not read."""
        remarks.append(f"{label}: {reason}")
        if not label.lower().endswith(PROGRESS):
            self.unread[label] = reason

    def _add(self, file: _File, found: dict[str, bytes], remarks: list[str], label: str) -> None:
        name = f"{label}/{file.path}"
        if file.path.suffix.lower() == ".zip":
            remarks.append(f"{name}: an archive inside an archive is not read")
        elif file.path.name.lower().endswith(PROGRESS) and file.read:
            try:
                self.progress = file.read(MOST_PROGRESS)
            except Unread as reason:
                remarks.append(f"{name}: {reason}")
        elif file.path.suffix.lower() == ".ipynb" and file.read:
            if len(found) >= MOST_NOTEBOOKS or sum(map(len, found.values())) > MOST_READ:
                raise Unread(
                    f"has more than {MOST_NOTEBOOKS} notebooks, or more than {MOST_READ >> 20} MB of them"
                )
            if name in found:
                remarks.append(f"{name} is in the archive twice; the last one counts")
            try:
                found[name] = file.read(MOST_NOTEBOOK)
            except Unread as reason:
                self._not_read(name, str(reason), remarks)


def _anonymous(labels: Iterable[str]) -> dict[str, str]:
    """File names that name nobody, by the files' own: chapter and number, in the same order."""
    found: dict[str, str] = {}
    for label in sorted(set(labels)):
        file = PurePosixPath(label.rpartition("/")[2])
        match = _course_name(file.name)
        stem, ending = (match[1].lower() if match else "file"), file.suffix.lower()[:8]
        name = f"{stem}{ending}"
        if file.name != name or name in found.values():
            name = next(
                n for i in itertools.count(1) if (n := f"{stem}-{i:03}{ending}") not in found.values()
            )
        found[label] = name
    return found


def digest(files: dict[str, bytes]) -> str:
    """Return the digest of notebooks and their names."""
    whole = hashlib.sha256()
    for label, data in sorted(files.items()):
        whole.update(
            hashlib.sha256(label.encode("utf-8", "replace")).digest() + hashlib.sha256(data).digest()
        )
    return whole.hexdigest()


def collect(paths: Sequence[Path], attempts: bool = False) -> tuple[list[Submission], list[str]]:
    """Return the submissions in folders, archives and notebooks, by student, and remarks on unused files.

    A student who is in several of them has one submission. With ``attempts``, each path and each date in a
    file's name gives a submission of its own instead, and the oldest of a student comes first.
    Raises FileNotFoundError if a path doesn't exist, ValueError if it can't hold submissions.
    """
    found: dict[tuple[str, int, str], Submission] = {}
    remarks: list[str] = []
    for number, path in enumerate(paths):
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file or folder")
        if path.is_dir():
            files, name = list(_folder(path, remarks)), path.resolve().name
        elif path.suffix.lower() == ".zip":
            try:
                members = list(_archive(path, path.name, remarks, MOST_MEMBERS))
            except Unread as reason:
                raise ValueError(f"{path}: {reason}") from None
            files, name = _unwrapped(members, path.stem), path.stem
        elif path.suffix.lower() == ".ipynb":
            whole = _File(PurePosixPath(path.name), partial(_read_file, str(path)))
            files, name = [whole], path.resolve().parent.name
        else:
            raise ValueError(f"{path} must be a folder, a zip archive or a notebook")
        dates = {first: each.date for first, each in _attempts(files).items()}
        for student, label, file in _by_student(files if attempts else _newest(files, remarks), name):
            date = dates.get(file.path.parts[0], "")
            key = (student, number, date) if attempts else (student, 0, "")
            submission = found.setdefault(key, Submission(student))
            submission.handed_in = max(submission.handed_in, date)
            submission.marked_late |= bool(_CANVAS_LATE.match(file.path.parts[0]))
            if file.read and _wanted(file.path.name):
                label = label if label not in {known for known, _ in submission._files} else f"{name}/{label}"
                submission._files.append((label, file.read))
    return [found[key] for key in sorted(found)], remarks


def of_one(folder: Path, student: str) -> Submission:
    """Return everything in a folder as one student's submission, whatever the files are called."""
    submission = Submission(student)
    for file in _folder(folder, submission.remarks):
        if file.read and _wanted(file.path.name):
            submission._files.append((str(file.path), file.read))
    return submission


def _attempts(files: Iterable[_File]) -> dict[str, _Attempt]:
    """Return the parts of names from Blackboard and Brightspace, by name."""
    names = dict.fromkeys(file.path.parts[0] for file in files)
    heads = {match[1] for name in names if (match := _BLACKBOARD.match(name))}
    # A user's name may have an underscore, as the assignment's has: what all begin with is the assignment's.
    assignment = os.path.commonprefix([*heads]).rpartition("_")[0] if len(heads) > 1 else ""
    found = {}
    for name in names:
        if match := _BLACKBOARD.match(name):
            own = match[1][len(assignment) + 1 :] if assignment else match[1].rpartition("_")[2]
            year, month, day, *time = match[2].split("-")
            date = f"{year}-{month}-{day}T{':'.join(time)}"
            found[name] = _Attempt(_student(own or match[1]), date, match[3] or "")
        elif match := _BRIGHTSPACE.match(name):
            found[name] = _Attempt(_student(match[1]), _in_order(match[2]), match[3] or "")
    return found


def _in_order(date: str) -> str:
    """Return a date as text that sorts by time; "" if its form is unknown."""
    for form in _DATES:
        try:
            return datetime.strptime(date.replace(",", "").replace(".", ""), form).isoformat()
        except ValueError:
            pass
    return ""


def _newest(files: Sequence[_File], remarks: list[str]) -> list[_File]:
    """Return the files without earlier attempts, by the dates in their names; files without a date stay."""
    attempts = _attempts(files)
    of = {file: attempts[file.path.parts[0]] for file in files if file.path.parts[0] in attempts}
    keys = {file: (each.student, _label(file, each)) for file, each in of.items() if each.date and file.read}
    last: dict[tuple[str, str], str] = {}
    for file, key in keys.items():
        last[key] = max(of[file].date, last.get(key, ""))
    old = {file for file, key in keys.items() if of[file].date < last[key]}
    wanted = sorted(str(file.path) for file in old if _wanted(file.path.name))
    remarks += [f"{_clean(name)[:150]}: not read, because a newer version was handed in" for name in wanted]
    return [file for file in files if file not in old]


def _label(file: _File, attempt: _Attempt) -> str:
    """Return the name of a file of an attempt among its student's files."""
    return "/".join(file.path.parts[1:]) or attempt.name or file.path.name


def _by_student(files: Iterable[_File], name: str) -> Iterator[tuple[str, str, _File]]:
    """Return each file with its student and its name among the student's files."""
    files = list(files)
    attempts = _attempts(files)
    notebooks = [f for f in files if f.path.suffix.lower() == ".ipynb"]
    bare = [f.path.name for f in notebooks if len(f.path.parts) == 1 and _own_name(f.path.name) == ""]
    last = _several(bare) or len(bare) < len(notebooks)  # or it is beside other students' files
    one = bool(notebooks) and len(bare) == len(notebooks) and not last
    for file in files:
        first, *others = file.path.parts
        if one:
            yield name, str(file.path), file
        elif attempt := attempts.get(first):
            if others or file.read is None or _wanted(first):
                yield attempt.student, _label(file, attempt), file
        elif others or file.read is None:
            yield _folder_name(first), "/".join(others), file
        elif _wanted(first):
            yield _own_name(first) or (last and _student(_name_after(first)[1])) or name, first, file


def _several(names: Sequence[str]) -> bool:
    """Return whether the names end with several students: two files of a chapter have different ends."""
    ends = {_name_after(name) for name in names}
    return any(count > 1 for count in Counter(chapter for chapter, end in ends if end).values())


def _name_after(name: str) -> tuple[str, str]:
    """Return a chapter and what follows it, as in ``01_blocks_ada.ipynb``; "" for only a copy's number."""
    match = _course_name(name)
    return (match[1].lower(), (match[2] or "").strip(" _-.")) if match else ("", "")


def _course_name(name: str) -> re.Match[str] | None:
    return next((match for names in _COURSE_NAMES if (match := names.search(name))), None)


def _wanted(name: str) -> bool:
    return name.lower().endswith((".ipynb", ".zip", PROGRESS))


def _folder_name(name: str) -> str:
    match = _MOODLE.match(name)
    return _student(match[1] if match else name)


def _own_name(name: str) -> str:
    """Return the student's part of a file's name; "" if there is none, as in ``01_blocks.ipynb``."""
    if match := _MOODLE.match(name) or _CANVAS.match(name):
        return _student("_".join(match.groups()))
    if match := _course_name(name):
        return _student(name[: match.start(1)].strip(" _-."))
    if name.lower().endswith(PROGRESS):
        return _student(name[: -len(PROGRESS)].strip(" _-."))
    return _student(PurePosixPath(name).stem)


def _student(name: str) -> str:
    """Return a name that can be shown. If it had to change, a digest keeps it different from others."""
    shown = _clean(name)
    if shown == unicodedata.normalize("NFC", name).strip():
        return shown
    return f"{shown}~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:6]}"


def _clean(name: str) -> str:
    """Return a name without control characters and characters that reverse text."""
    text = unicodedata.normalize("NFC", name)
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))[:120].strip()


def _skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


# ---- folders


def _folder(root: Path, remarks: list[str]) -> Iterator[_File]:
    """Yield the files below a folder. Anything that is not a plain file says so when it is read."""
    todo = [(str(root), PurePosixPath())]
    counts: Counter[str] = Counter()
    while todo:
        place, inner = todo.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            remarks.append(f"{_clean(str(inner))}: {error.strerror}")
            continue
        for entry in entries:
            path = inner / entry.name
            first = path.parts[0]
            counts[first] += 1
            if counts[first] == MOST_FILES:
                remarks.append(f"{_clean(first)} has more than {MOST_FILES} files; the others are not read")
            if _skipped(entry.name) or counts[first] >= MOST_FILES:
                continue
            if entry.is_dir(follow_symlinks=False):
                if len(path.parts) == 1:
                    yield _File(path, None)
                if len(path.parts) < DEEPEST:
                    todo.append((entry.path, path))
            else:
                yield _File(path, partial(_read_file, entry.path))


def _read_file(path: str, most: int) -> bytes:
    """Return a plain file's bytes. Raise Unread for a link, a device, and a file that is too large."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        is_link = os.path.islink(path)
        raise Unread("a symbolic link, which is not followed" if is_link else f"{error.strerror}") from None
    with os.fdopen(file, "rb") as opened:
        state = os.fstat(opened.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise Unread("not a plain file")
        if state.st_nlink > 1:
            raise Unread("it is a hard link, which may lead to somebody else's file: hand in a copy")
        if state.st_size > most:
            raise Unread(f"it is {state.st_size >> 20} MB, but at most {most >> 20} MB are read")
        return opened.read(most)


# ---- archives


def _archive(
    source: Path | io.BytesIO, label: str, remarks: list[str], most: int, unpacked: int = 0
) -> Iterator[_File]:
    """Yield the members of a zip. Nothing is written, and a name is never used as a path.

    unpacked: the bytes after which no more is unpacked; 0 means no limit.
    """
    left = [unpacked] if unpacked else None
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise Unread(f"this zip archive cannot be read ({error})") from None
    if len(archive.infolist()) > most:
        raise Unread(f"an archive of more than {most} files")
    for member in archive.infolist():
        name = member.filename.replace("\\", "/")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
            remarks.append(f"{label}: {_clean(name)[:80]!r} leads out of the archive and is not read")
        elif not name.endswith("/") and path.parts and not any(map(_skipped, path.parts)):
            yield _File(path, partial(_read_member, archive, member, left))


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, left: list[int] | None, most: int
) -> bytes:
    """Return a member's bytes. left: how many more bytes the archive may unpack to."""
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Unread("a symbolic link, which is not followed")
    if member.flag_bits & 1:
        raise Unread("encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # zipfile unpacks others whole
        raise Unread("compressed in a way that is not supported: use your system's own zip")
    if left is not None and left[0] <= 0:
        raise Unread(f"not read: the archive unpacks to more than {MOST_UNPACKED >> 20} MB")
    try:
        with archive.open(member) as opened:
            data = opened.read(most + 1)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise Unread(f"it cannot be unpacked ({error})") from None
    if left is not None:
        left[0] -= len(data)
    if len(data) > most:
        raise Unread(f"it is more than {most >> 20} MB when unpacked")
    return data


def _unwrapped(files: list[_File], name: str) -> list[_File]:
    """Return the files without one folder around everything, if it contains several students' files."""
    firsts = {file.path.parts[0] for file in files}
    if len(firsts) != 1 or any(len(file.path.parts) < 2 for file in files):
        return files
    inner = [_File(PurePosixPath(*file.path.parts[1:]), file.read) for file in files]
    students = {student for student, _, _ in _by_student(inner, "")}
    return inner if firsts == {name} or len(students) > 1 else files

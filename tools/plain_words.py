#!/usr/bin/env python3
"""Finds phrases that readers stop at, in comments, messages and pages.

    tools/plain_words.py              # every file of the repository
    tools/plain_words.py cli docs     # these files and folders

Prints "file:line: phrase: text" for each, and exits with 1 if there is one. tools/plain_words_exceptions.txt
has the places where a phrase is right, with the reason.

What is read: comments of C++, CUDA, Python, shell and Bazel files, docstrings, string literals of C++
files that are no tests (messages), and the prose of Markdown pages. Blocks of code and `code` are not.
"""

import io
import pathlib
import re
import subprocess
import sys
import tokenize
from typing import Iterator, List, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXCEPTIONS = ROOT / "tools" / "plain_words_exceptions.txt"
MAX_EXCEPTIONS = 40
MAX_LINE = 100

# A phrase, and what to write instead.
PHRASES = [
    (r"(?<!there )\b(?:is|are|was|were|be) no (?!longer\b|more\b|less\b|fewer\b|larger\b|greater\b|smaller\b|"
     r"later\b|earlier\b|slower\b|faster\b|better\b|worse\b|dearer\b|cheaper\b|wider\b|longer\b)",
     "is not a, there is no"),
    (r"\bgone on\b|\bgoes on by\b", "expand, continue"),
    (r"\bwhoever\b", "the one that, a caller that"),
    (r"\bnobody\b", "no rank, no thread, no caller"),
    (r"\banew\b", "again"),
    (r"\bas a rule\b", "usually"),
    (r"\bone behind the other\b", "contiguous, back to back, in sequence"),
    (r"\bbehind\b", "after, late"),
    (r"\balike\b", "equal, the same"),
    (r"\blikewise\b", "too, in the same way"),
    (r"\bso (?:many|much)\b", "the number, that many"),
    (r"\black(?:s|ed|ing)?\b", "does not have, missing"),
    (r"\bis looked at\b|\bare looked at\b", "is examined"),
    (r"\bis told\b|\bare told\b", "hears, is detected"),
    (r"\b[Ww]hat (?:is|are|was|were|lies|lie|comes|come|goes|waits|remains|counts|follows)\b"
     r"(?![^.!?]*\?)", "name the thing"),
]
# A sentence begins after the start of a comment or paragraph, or after ". ".
SENTENCE = re.compile(r"(?:^|(?<=[.;:!?] ))(Of|What|Whoever) (?![^.!?]*\?)")
COMPILED = [(re.compile(p, re.IGNORECASE if "[Ww]" not in p else 0), hint) for p, hint in PHRASES]

Text = Tuple[int, str]  # the line where it begins, and the text, with line ends


def cpp_texts(source: str, messages: bool) -> Iterator[Text]:
    """Comments, those on lines after one another as one, and string literals."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\((?:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        re.S)
    block: List[str] = []
    begin = 0
    last = -2
    for match in token.finditer(source):
        text = match.group()
        line = source.count("\n", 0, match.start()) + 1
        if text.startswith("//"):
            own = source[source.rfind("\n", 0, match.start()) + 1:match.start()].strip() == ""
            if line != last + 1 or not own:
                if block:
                    yield begin, "\n".join(block)
                block, begin = [], line
            block.append(text[2:])
            last = line
        elif text.startswith("/*"):
            yield line, text[2:-2]
        elif messages and text[0] in '"R' and not text.startswith("'"):
            before = source[source.rfind("\n", 0, match.start()) + 1:match.start()]
            if not before.lstrip().startswith("#include"):
                yield line, text.strip('R"')
    if block:
        yield begin, "\n".join(block)


def python_texts(source: str) -> Iterator[Text]:
    previous = tokenize.NEWLINE
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#")
            elif token.type == tokenize.STRING and previous in (
                    tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL):
                yield token.start[0], token.string.strip("rb\"'")
            if token.type != tokenize.COMMENT:
                previous = token.type
    except (tokenize.TokenError, IndentationError):
        return


def hash_texts(source: str) -> Iterator[Text]:
    for number, line in enumerate(source.split("\n"), 1):
        match = re.match(r"^(?:[^\"'#]*\s)?#(?!!)\s?(.*)$", line)
        if match:
            yield number, match.group(1)


def page_texts(source: str) -> Iterator[Text]:
    inside = False
    paragraph: List[str] = []
    begin = 1
    for number, line in enumerate(source.split("\n") + [""], 1):
        if line.lstrip().startswith("```"):
            inside = not inside
            line = ""
        elif inside:
            line = ""
        if not line.strip() or line.startswith("#"):
            if paragraph:
                yield begin, "\n".join(paragraph)
            paragraph = []
            continue
        if not paragraph:
            begin = number
        paragraph.append(re.sub(r"^\s*(?:[-*]|\d+\.|\|)\s+", "", line))


def texts_of(path: pathlib.Path, source: str) -> Iterator[Text]:
    name = path.name
    if path.suffix in (".h", ".cc", ".cu", ".cuh", ".c"):
        is_test = "_test." in name or name.startswith("test_")
        return cpp_texts(source, messages=not is_test)
    if path.suffix == ".py":
        return python_texts(source)
    if path.suffix == ".md":
        return page_texts(source)
    return hash_texts(source)


def is_read(path: pathlib.Path, source: str) -> bool:
    if path.name in ("CHANGELOG.md", "plain_words.py", "plain_words_exceptions.txt"):
        return False
    if path.suffix in (".h", ".cc", ".cu", ".cuh", ".c", ".py", ".md", ".sh", ".bzl", ".cmake"):
        return True
    return path.name in ("BUILD", "WORKSPACE", "CMakeLists.txt") or source.startswith("#!")


def findings_of(path: pathlib.Path, source: str) -> Iterator[Tuple[int, str, str]]:
    for begin, text in texts_of(path, source):
        # Neither code nor what stands in quotes is prose.
        plain = re.sub(r"`[^`]*`", lambda m: "x" * len(m.group()), text)
        flat = plain.replace("\n", " ")
        flat = re.sub(r"(?<=\s)\s+", lambda m: " " * len(m.group()), flat)
        for pattern, hint in COMPILED:
            for match in pattern.finditer(flat):
                line = begin + plain.count("\n", 0, match.start())
                yield line, f"'{match.group().strip()}' ({hint})", context(flat, match)
        for match in SENTENCE.finditer(re.sub(r"^\s*", "", flat)):
            shift = len(flat) - len(re.sub(r"^\s*", "", flat))
            line = begin + plain.count("\n", 0, match.start() + shift)
            yield line, f"a sentence begins with '{match.group(1)}'", context(flat, match, shift)
    prose = path.suffix == ".md"
    inside = False
    for number, line in enumerate(source.split("\n"), 1):
        if prose and line.lstrip().startswith("```"):
            inside = not inside
        is_prose = prose and not inside and not line.startswith("|") and "](" not in line
        if len(line) > MAX_LINE and (is_prose or line.lstrip().startswith("//")):
            yield number, f"a line of {len(line)} characters", line[:60]


def context(text: str, match: "re.Match[str]", shift: int = 0) -> str:
    begin = max(0, match.start() + shift - 30)
    return re.sub(r"\s+", " ", text[begin:match.end() + shift + 40]).strip()


def exceptions() -> List[Tuple[str, str]]:
    """Lines "path | text | reason": in this file what has the text is right."""
    found = []
    lines = EXCEPTIONS.read_text().split("\n") if EXCEPTIONS.exists() else []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ")]
        if len(parts) != 3 or not all(parts):
            sys.exit(f"{EXCEPTIONS.name}: '{line}' is not 'path | text | reason'")
        found.append((parts[0], parts[1]))
    if len(found) > MAX_EXCEPTIONS:
        sys.exit(f"{EXCEPTIONS.name}: {len(found)} exceptions; at most {MAX_EXCEPTIONS}")
    return found


def main(args: List[str]) -> int:
    listed = subprocess.run(["git", "ls-files", "-z", *args], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode()
    allowed = exceptions()
    count = 0
    for name in listed.split("\0"):
        path = ROOT / name
        if not name or not path.is_file() or path.is_symlink():
            continue
        try:
            source = path.read_text()
        except UnicodeDecodeError:
            continue
        if not is_read(path, source):
            continue
        for line, phrase, text in findings_of(path, source):
            if any(name == file and part in text for file, part in allowed):
                continue
            print(f"{name}:{line}: {phrase}: {text}")
            count += 1
    print(f"{count} found", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

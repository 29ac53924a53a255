"""Pseudonyms for private names in profiles that are shown to others; numbers stay.

Only public names stay: a part of a name is public if nbprof itself writes all of its words, or a
framework or one of its libraries uses them in names (`public_words.txt`). Everything else is
replaced, so that unforeseen fields are covered. In paths only the part after `site-packages` can
stay; addresses never do.
"""

from __future__ import annotations

import ast
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from nbprof.core.late_pattern import late_pattern
from nbprof.display.payload import Part

_PACKAGE = Path(__file__).parents[1]
_NEVER = frozenset(
    {"secret", "secrets", "password", "passwords", "confidential", "credential", "credentials"}
)
_LEAST = 3
"""Shorter words are not private: they are units, types and tiles."""

_ADDRESS = late_pattern(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|ip(?:-\d{1,3}){4}|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2}){4}"
    r"|(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4})(?![\w])"
)
"""IP addresses, also in names of hosts, e-mail addresses, hardware addresses."""
_PATH = late_pattern(
    r"(?:[A-Za-z][\w+.-]*://|(?<![\w.])[A-Za-z]:[\\/]|(?<![\w./~)\]}])~?/(?=[\w.@+~-]+/))"
    r"[^\s\"'<>|:;,()\[\]{}*`“”‘’]+"
)
"""URLs, and absolute paths of two parts or more; not `jit(f)/jit(main)/add` or
`/job:worker/task:0`.
"""
_UNSEEN = ("M", "Cf", "Cs", "Co")
"""Categories of invisible characters and separate accents, which would split a word."""
_LIBRARY = late_pattern(r"^(.*[\\/])((?:site|dist)-packages[\\/].*)$")
_SUFFIX = late_pattern(
    r"(?:\.(?:py|ipynb|pb|json|gz|zip|pt|tar|csv|db|html|cpp|cc|cu|h|so))+$", re.IGNORECASE
)
_RUN = late_pattern(r"[^\W_]+")
_SEGMENT = late_pattern(r"[^\W_](?:[\w$-]*[^\W_])?")
_WORD = late_pattern(r"[^\W\d_]+|\d+")
_CAMEL = late_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_TILE = late_pattern(r"(?:(?:bf|tf|fp|[fuis])\d+)+|(?P<word>[a-z]*?)\d+(?:x\d+)*[a-z]?")
"""Types and sizes of kernels: `bf16bf16`, `tilesize64x64x64`."""
_LIBRARY_KERNEL = late_pattern(
    r"(?:Cijk|nvjet)(?:_(?:[A-Z]{1,6}(?:\d+[A-Z]{1,2})?\d*(?:x\d+)*|\d+x\d+|[a-z]{1,4}[A-Z]?"
    r"|Bias|UserArgs|A[il]{2}k|B[jl]{2}k))+"
)
"""Kernels of Tensile and cuBLAS with many abbreviations: `Cijk_Ailk_Bljk_SB_MT128x64x8_SE`."""
_SHORT = late_pattern(
    r"[a-z]{1,2}\d{1,6}|[a-z]{1,2}\d{1,3}[a-z]|\d{1,6}[a-z]{1,2}|\d{1,2}[a-z]\d{1,2}|\d+"
)
"""`mi300x`, `r2c`, `1c11`."""

_LITERALS = r"""\#[^\n]*                                      # a comment
    |^[ ]*[rR]?\"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\"{3}  # a docstring, which begins its line
    |(?P<prefix>[a-zA-Z]{0,2})
     (?P<literal>\"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\"{3}|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')"""
_LITERAL = late_pattern(_LITERALS, re.DOTALL | re.MULTILINE | re.VERBOSE)
_FIELD = late_pattern(r"\{((?:[^{}]|\{[^{}]*\})*)\}")


class Redactor:
    """Replaces names by pseudonyms.

    Parameters
    ----------
    private : iterable of str
        Names of hosts and files, which are replaced whatever their words.
    key : bytes
        The same key gives the same pseudonyms. Without it, nobody can find the name of a pseudonym
        by trying.
    allowed : iterable of str
        Texts that stay if they are complete texts, like those of nbprof's code, such as the names
        of columns.

    Attributes
    ----------
    replaced : dict of str to str
        Pseudonyms by name.
    """

    def __init__(self, private: Iterable[str], key: bytes, allowed: Iterable[str] = ()) -> None:
        self.replaced: dict[str, str] = {}
        self._key = key
        self._seen: dict[str, str] = {}
        self._allowed = own_texts().union(allowed) - _NEVER
        # A file with the name of a tab or a column: the page needs the word, which is not private.
        names = {name for name in private if len(name) >= _LEAST and name not in self._allowed}
        # Grouped by their first word, because there may be thousands.
        beginning: dict[str, list[str]] = {}
        for name in sorted(names, key=len, reverse=True):
            first = _RUN.search(name)
            if first is not None:
                beginning.setdefault(first[0], []).append(re.escape(name[first.start() :]))
        self._private = {}
        for first_word, patterns in beginning.items():
            self._private[first_word] = re.compile(rf"(?:{'|'.join(patterns)})(?![^\W_])")

    def text(self, text: str) -> str:
        """A text with pseudonyms instead of names."""
        if text in self._allowed:
            return text
        if text not in self._seen:
            self._seen[text] = self._redacted(_visible(text.replace("\0", " ")))
        return self._seen[text]

    def _redacted(self, text: str) -> str:
        # Finished parts are replaced by their number between zero bytes.
        finished: list[str] = []

        def finish(match: re.Match[str], by: Callable[[str], str]) -> str:
            finished.append(by(match[0]))
            return f"\0{len(finished) - 1}\0"

        offset, parts = 0, []
        for run in _RUN.finditer(text):
            pattern = self._private.get(run[0])
            if run.start() < offset or pattern is None:
                continue
            if match := pattern.match(text, run.start()):
                parts += [text[offset : match.start()], finish(match, self._pseudonym)]
                offset = match.end()
        text = "".join([*parts, text[offset:]])
        text = _PATH.sub(lambda match: finish(match, self._path), text)
        text = _ADDRESS.sub(lambda match: finish(match, self._pseudonym), text)
        redacted = []
        for part in re.split("(\0\\d+\0)", text):
            if part[:1] == "\0":
                redacted.append(finished[int(part[1:-1])])
            else:
                redacted.append(_SEGMENT.sub(self._segment, part))
        return "".join(redacted)

    def tree(self, value: Any) -> Any:
        """The same for every text in lists, dicts (with their keys) and parts of a payload."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.tree(key): self.tree(each) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.tree(each) for each in value)
        if isinstance(value, Part):
            names = [field.name for field in fields(value)]  # type: ignore[arg-type]  # it is one
            return type(value)(**{name: self.tree(getattr(value, name)) for name in names})
        return value

    def _segment(self, match: re.Match[str]) -> str:
        if _public(match[0]):
            return match[0]
        return self._pseudonym(match[0])

    def _path(self, path: str) -> str:
        path, end = path.rstrip("."), "." * (len(path) - len(path.rstrip(".")))
        if library := _LIBRARY.match(path):
            root = "…/"
            if library[1] == "/":
                root = "/"
            return root + _SEGMENT.sub(self._segment, library[2]) + end
        if suffix := _SUFFIX.search(path):
            end = suffix[0] + end
            path = path.removesuffix(suffix[0])
        return self._pseudonym(path) + end

    def _pseudonym(self, name: str) -> str:
        if name not in self.replaced:
            data = name.encode(errors="surrogatepass")
            digest = hashlib.blake2b(data, key=self._key, digest_size=4).hexdigest()
            self.replaced[name] = f"name_{digest}"
        return self.replaced[name]


def _visible(text: str) -> str:
    """The text without characters that would split a word."""
    if text.isascii():
        return text
    normal = unicodedata.normalize("NFC", text)
    return "".join(char for char in normal if not unicodedata.category(char).startswith(_UNSEEN))


def words(name: str) -> list[str]:
    """The words of a name, in lower case: `FusedBatchNormV3` has fused, batch, norm, v, 3."""
    return [word.lower() for word in _CAMEL.findall(name)]


@lru_cache(maxsize=100_000)
def _public(segment: str) -> bool:
    if _LIBRARY_KERNEL.fullmatch(segment):
        return True
    return all(map(_is_public, filter(None, re.split(r"[_$-]+", segment))))


def _is_public(part: str) -> bool:
    """True if a run of letters and digits consists of public words."""
    if not part.isascii():
        return part == "µs" or not any(char.isalpha() for char in part)
    low, public = part.lower(), vocabulary()
    if low in public or _SHORT.fullmatch(low) or (len(low) < _LEAST and low.isalpha()):
        return True
    tile = _TILE.fullmatch(low)
    if tile and (not tile["word"] or len(tile["word"]) < _LEAST or tile["word"] in public):
        return True
    if low.lstrip("0123456789") in public:
        return True
    # Camel case, with whole words only: letters between digits could form anything.
    camel_words = _CAMEL.findall(part)
    letters = [word.lower() for word in camel_words if word.isalpha()]
    return (
        len(camel_words) > 1
        and any(len(word) >= _LEAST for word in letters)
        and all(word in public or len(word) < _LEAST for word in letters)
    )


@lru_cache(maxsize=1)
def own_texts() -> frozenset[str]:
    """All strings in the code of nbprof except docstrings."""
    texts: set[str] = set()
    for path in _PACKAGE.rglob("*.py"):
        texts.update(_literals(path.read_text(encoding="utf-8")))
    return frozenset(texts)


def _literals(code: str) -> Iterator[str]:
    """The strings in Python code, also in fields of f-strings. `ast` is ten times slower: seconds
    for the package.
    """
    for match in _LITERAL.finditer(code):
        literal, prefix = match["literal"], match["prefix"]
        if literal is None or "b" in prefix.lower():
            continue
        quotes = 3 if literal.startswith('"""') else 1
        text = literal[quotes:-quotes]
        if "\\" in literal and "r" not in prefix.lower():
            text = ast.literal_eval(literal)
        if "f" not in prefix.lower():
            yield text
            continue
        for index, part in enumerate(_FIELD.split(text)):
            yield from _literals(part) if index % 2 else [part]


@lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    """The words that stay: of names that frameworks use, and of texts that nbprof writes."""
    public = set((_PACKAGE / "display" / "public_words.txt").read_text(encoding="utf-8").split())
    for text in [*own_texts(), (_PACKAGE / "tools" / "names.json").read_text(encoding="utf-8")]:
        public.update(word.lower() for word in _WORD.findall(text))
        public.update(words(text))
    return frozenset(word for word in public - _NEVER if len(word) >= _LEAST)

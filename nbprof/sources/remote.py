"""Files behind a URL, through fsspec: `s3://`, `gs://`, `https://`, `memory://` and every other
scheme with an installed backend.

Bytes are read into memory, never into a temporary file. Labels and errors do not contain secrets of
a URL or of storage options, such as a password or the signature of a presigned URL.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer, Growing, Stamp, printable
from nbprof.core.packed import as_file
from nbprof.core.units import size_text
from nbprof.sources import notes
from nbprof.sources.folders import Listing
from nbprof.sources.urls import public_url, scrubbed

Progress = Callable[[str], None] | None

_PACKAGES = {
    "s3fs": "s3 s3a",
    "gcsfs": "gs gcs",
    "adlfs": "abfs abfss az adl",
    "aiohttp": "http https",
    "huggingface_hub": "hf",
    "paramiko": "sftp ssh",
    "smbprotocol": "smb",
    "requests": "github gist dbfs webhdfs",
    "ocifs": "oci",
    "ossfs": "oss",
    "pyarrow": "hdfs arrow_hdfs",
    "gdrive_fs": "gdrive",
    "dropboxdrivefs": "dropbox",
    "webdav4": "webdav",
    "wandbfs": "wandb",
    "dvc": "dvc",
    "lakefs-spec": "lakefs",
    "boxfs": "box",
    "tosfs": "tos",
    "libarchive-c": "libarchive",
    "fsspec-xrootd": "root",
    "pygit2": "git",
}
"""Packages of backends, with their schemes."""
_BACKENDS = {
    scheme: package for package, schemes in _PACKAGES.items() for scheme in schemes.split()
}
# Size and number of concurrent requests: a single one is far slower than the storage.
_PART, _PARTS = 1 << 23, 8
_STREAM = 1 << 20
_BLOCK = 1 << 20
_MOST_PAGES = 2000
_CHANGED = (
    *("ETag", "etag", "mtime", "LastModified", "last_modified", "Last-Modified"),
    *("updated", "generation", "md5Hash", "content_md5", "created"),
)
_OF_CONTENT = ("ETag", "etag", "generation", "md5Hash", "content_md5")
_TIMES = (
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "modified",
    "Last-Modified",
    "timeModified",
    "created",
)


@dataclass(frozen=True)
class Storage:
    """A file system of fsspec, with its URL."""

    fs: Any
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def http(self) -> bool:
        """True for plain HTTP, which has no listing and may not support ranges of files."""
        protocol = getattr(self.fs, "protocol", "")
        if isinstance(protocol, (tuple, list)):
            return "http" in protocol
        return protocol in ("http", "https")

    def label(self, path: str) -> str:
        """A path of this storage as a URL without secrets."""
        try:
            url = str(self.fs.unstrip_protocol(path))
        except Exception:
            url = path
        return public_url(url)

    @contextlib.contextmanager
    def errors(self, label: str) -> Iterator[None]:
        """Turn exceptions of a backend into a `ReadError` with a label and without secrets."""
        try:
            yield
        except ReadError as error:
            if error.path:
                raise
            raise ReadError(error.reason, path=label, offset=error.offset) from None
        except Exception as caught:
            cause: BaseException = caught
            if isinstance(caught, FileNotFoundError):
                # Over HTTP every error is a missing file; the actual one is its cause.
                if caught.__cause__ is None or getattr(caught.__cause__, "status", 0) == 404:
                    raise ReadError(
                        "there is no such file or folder, or you do not have access.", path=label
                    ) from None
                cause = caught.__cause__
            # Backends have their own exceptions (botocore, aiohttp, google.auth ...), whose
            # tracebacks contain the URL.
            name = type(cause).__name__
            message = scrubbed(str(cause), self.url, self.options)
            description = f"{name} {message}"
            if isinstance(cause, PermissionError) or re.search(
                r"forbidden|denied|403", description, re.I
            ):
                remedy = (
                    "Check the permissions to list and read it, or pass other credentials:"
                    " nbprof.load(..., storage_options={...})."
                )
            elif re.search(r"credential|unauthori[sz]ed|401", description, re.I):
                remedy = (
                    "If it needs credentials, set them up for fsspec, or pass them:"
                    " nbprof.load(..., storage_options={...})."
                )
            else:
                remedy = "Check the address and the connection, and try again."
            reason = ": ".join(filter(None, (name, message)))
            raise ReadError(f"could not be read ({reason}). {remedy}", path=label) from None


def connect(url: str, options: Mapping[str, Any] | None) -> tuple[Storage, str]:
    """The file system that a URL is on, and the path on it.

    Raises
    ------
    ReadError
        The scheme is unknown, or its backend is not installed; the message says what to install.
    """
    import fsspec  # type: ignore[import-untyped]

    label = public_url(url)
    scheme = re.split(r"://|::", url, maxsplit=1)[0].lower()
    settings = dict(options or {})
    try:
        if scheme in ("http", "https") and "::" not in url and "client_kwargs" not in settings:
            import aiohttp

            # The default limit of aiohttp is five minutes in total: too short for a large profile.
            settings["client_kwargs"] = {
                "timeout": aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=120)
            }
        fs, path = fsspec.core.url_to_fs(url, **settings)
    except ImportError as error:
        how = missing_backend(url) or scrubbed(str(error), url, options)
        raise ReadError(
            f"the backend for {scheme}:// is not installed: {how}", path=label
        ) from None
    except ValueError as error:
        if "rotocol not known" in str(error):
            raise ReadError(
                f"{scheme}:// is not a scheme that fsspec knows: is it misspelled?", path=label
            ) from None
        raise ReadError(
            f"the URL could not be used: {scrubbed(str(error), url, options)}", path=label
        ) from None
    except Exception as error:
        with Storage(None, url, settings).errors(label):
            raise error
    return Storage(fs, url, settings), path


def missing_backend(url: str) -> str:
    """The command that installs the missing backend of a URL; "" if none is known to be missing."""
    missing = next(
        (_BACKENDS[part] for part in _schemes(url) if part in _BACKENDS and not _installed(part)),
        "",
    )
    return f"pip install {missing}" if missing else ""


def _schemes(url: str) -> list[str]:
    return [re.split(r"://", part, maxsplit=1)[0].lower() for part in url.split("::")]


def _installed(scheme: str) -> bool:
    import fsspec

    try:
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError):
        return False
    return True


def time_of(info: Mapping[str, Any]) -> float:
    """Time of the last change of a file, seconds since 1970; 0.0 if unknown."""
    for key in _TIMES:
        value = info.get(key)
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            if isinstance(value, datetime):
                return value.timestamp()
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value)
            if isinstance(value, str):
                if re.match(r"\d{4}-", value):
                    return datetime.fromisoformat(re.sub(r"Z$", "+00:00", value)).timestamp()
                # Imported late: only plain HTTP has times in this format.
                from email.utils import parsedate_to_datetime

                return parsedate_to_datetime(value).timestamp()
    return 0.0


@dataclass(frozen=True)
class RemoteFile:
    """A file behind a URL."""

    storage: Storage
    path: str
    info: Mapping[str, Any]
    limit: int
    progress: Progress = None

    @property
    def name(self) -> str:
        """Base name."""
        bare = self.path.split("?")[0].split("#")[0] if self.storage.http else self.path
        name = bare.rstrip("/").rpartition("/")[2]
        return printable(unquote(name) if self.storage.http else name)

    @property
    def label(self) -> str:
        """The URL without secrets."""
        return self.storage.label(self.path)

    @property
    def size(self) -> int | None:
        """Bytes; None if unknown."""
        size = self.info.get("size")
        return int(size) if isinstance(size, (int, float)) else None

    @property
    def modified(self) -> float:
        """Seconds since 1970."""
        return time_of(self.info)

    def head(self, count: int) -> bytes:
        """The first bytes."""
        with self.storage.errors(self.label):
            if not self.storage.http:
                return bytes(self.storage.fs.cat_file(self.path, start=0, end=count))
            # A server without ranges would send the whole file.
            content = b""
            with self.storage.fs.open(self.path, "rb", block_size=0) as file:
                while len(content) < count and (block := file.read(count - len(content))):
                    content += block
            return content

    def open(self) -> BinaryIO:
        """A seekable file; downloaded first if the storage does not support ranges."""
        with self.storage.errors(self.label):
            if self.size:
                file = self.storage.fs.open(self.path, "rb", block_size=_BLOCK)
                try:
                    if file.seekable():
                        # Fails here if the server does not support ranges.
                        file.seek(self.size - 1)
                        file.read(1)
                        file.seek(0)
                        return cast(BinaryIO, file)
                except Exception:
                    file.close()
            return as_file(self.read())

    def read(self) -> Buffer:
        """All bytes."""
        with self.storage.errors(self.label):
            before = self._stamp()
            size = before.get("size")
            if self.storage.http or size is None:
                buffer = self._stream(size)
            else:
                buffer = self._parts(int(size))
            if before != self._stamp():
                raise ReadError(
                    "changed while being read; load it again when the profiler has finished"
                    " writing."
                )
        return buffer

    def stamp(self) -> Stamp | None:
        """State of the file; None if the storage has nothing that changes with the content."""
        with self.storage.errors(self.label):
            state = self._stamp()
        stated_keys = [key for key in _OF_CONTENT if key in state]
        content_keys = [key for key in stated_keys if not str(state[key]).startswith("W/")]
        changed = time_of(state)
        if not content_keys and not changed:
            return None
        # Not the label, which is the same for URLs that differ only in secrets.
        location = hashlib.sha256(
            f"{self.storage.url}\n{self.path}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        return Stamp(
            (location, *(f"{key} {value}" for key, value in sorted(state.items()))),
            0 if content_keys else int(changed * 1e9),
        )

    def _stamp(self) -> dict[str, Any]:
        """Size, times and checksums of the file."""
        # fsspec caches listings even if files change.
        self.storage.fs.invalidate_cache()
        info = self.storage.fs.info(self.path)
        return {
            "size": info.get("size"),
            **{key: info[key] for key in _CHANGED if info.get(key) is not None},
        }

    def _report(self, done: int, size: int | None) -> None:
        if self.progress:
            total = f" of {size_text(size)}" if size else ""
            self.progress(f"downloading {self.name}: {size_text(done)}{total}")

    def _parts(self, size: int) -> Buffer:
        buffer = Buffer(size)
        view = buffer.data
        offset = 0
        with contextlib.ExitStack() as stack:
            file: Any = None
            if not getattr(self.storage.fs, "async_impl", False):
                file = stack.enter_context(self.storage.fs.open(self.path, "rb"))
            while offset < size:
                if file is None:
                    starts = list(range(offset, min(offset + _PART * _PARTS, size), _PART))
                    ends = [min(start + _PART, size) for start in starts]
                    blocks = self.storage.fs.cat_ranges(
                        [self.path] * len(starts), starts, ends, on_error="raise"
                    )
                else:
                    blocks, ends = [file.read(min(_PART, size - offset))], []
                for i, block in enumerate(blocks):
                    if not block or (ends and len(block) != ends[i] - offset):
                        raise ReadError(
                            f"only {offset + len(block):,} of {size:,} bytes arrived. Try again; if"
                            " it is being written, wait."
                        )
                    view[offset : offset + len(block)] = block
                    offset += len(block)
                self._report(offset, size)
        return buffer

    def _stream(self, size: int | None) -> Buffer:
        grown = Growing(self.label, max(self.limit, size or 0))
        reported = 0
        with self.storage.fs.open(self.path, "rb", block_size=0) as file:
            while block := file.read(_STREAM):
                grown.add(block)
                if grown.size - reported >= _PART:
                    reported = grown.size
                    self._report(reported, size)
        # The size is not checked, because a server may compress the content; a broken connection is
        # an error anyway.
        return grown.buffer()


@dataclass(frozen=True)
class RemoteFolder:
    """A folder behind a URL, or a prefix of names in an object store."""

    storage: Storage
    path: str
    limit: int
    progress: Progress = None

    cheap = False

    @property
    def name(self) -> str:
        """Base name."""
        return printable(self.path.rstrip("/").rpartition("/")[2])

    @property
    def label(self) -> str:
        """The URL without secrets."""
        return self.storage.label(self.path)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def below(self, path: str) -> str:
        """The URL of a folder below."""
        return f"{self.label.rstrip('/')}/{printable(path)}" if path else self.label

    def listing(self) -> Listing:
        """All files below, from the listing of the storage."""
        path = self.path.strip("/")
        if self.storage.http:
            path = unquote(path)
        listing = Listing.of(path.split("/"))
        with self.storage.errors(self.label):
            # Otherwise new runs would not be listed.
            self.storage.fs.invalidate_cache()
            if self.progress:
                self.progress(f"listing {self.label}")
            if self.storage.http:
                self._pages(listing)
            else:
                for path, info in sorted(self.storage.fs.find(self.path, detail=True).items()):
                    listing.take(self._relative(path), partial(self._file, path, info))
        return listing

    def _file(self, path: str, info: Mapping[str, Any]) -> RemoteFile:
        return RemoteFile(self.storage, path, info, self.limit, self.progress)

    def _relative(self, path: str) -> str:
        root = self.path.rstrip("/") + "/"
        return path[len(root) :] if path.startswith(root) else path.lstrip("/")

    def _pages(self, listing: Listing) -> None:
        """List the pages of a web server for folders, following links to whatever is below."""
        queue = [self.path.rstrip("/") + "/"]
        seen: set[str] = set()
        while queue:
            page = queue.pop(0)
            if page in seen or len(seen) >= _MOST_PAGES:
                continue
            seen.add(page)
            for entry in sorted(
                self.storage.fs.ls(page, detail=True), key=lambda e: str(e["name"])
            ):
                link = str(entry["name"])
                relative = unquote(self._relative(link.split("?")[0].split("#")[0]))
                if (
                    not link.startswith(self.path.rstrip("/") + "/")
                    or "?" in link
                    or "#" in link
                    or not relative.strip("/")
                    or ".." in relative.split("/")
                ):
                    continue
                if link.endswith("/"):
                    if listing.walks(relative.rstrip("/")):
                        queue.append(link)
                else:
                    listing.take(relative, partial(self._file, link, {}))
        if len(seen) >= _MOST_PAGES:
            listing.doubts.append(notes.many_subfolders(_MOST_PAGES))

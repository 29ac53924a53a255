"""Files behind a URL, through fsspec: `s3://`, `gs://`, `https://`, `memory://` and every other
scheme that a backend is installed for.

Bytes go straight into memory, never into a temporary file. What a URL or the options of a storage
hold of secrets (a password, the signature of a presigned URL) is in no label and no error.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer, Growing, Stamp, printable
from nbprof.core.packed import as_file
from nbprof.core.units import size_text
from nbprof.sources.folders import Listing
from nbprof.sources.urls import scrubbed, shown

Progress = Callable[[str], None] | None

_BACKENDS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "adl": "adlfs",
    "http": "aiohttp", "https": "aiohttp", "hf": "huggingface_hub", "sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol",
    "github": "requests", "gist": "requests", "dbfs": "requests", "webhdfs": "requests", "oci": "ocifs", "oss": "ossfs", "hdfs": "pyarrow",
    "arrow_hdfs": "pyarrow", "gdrive": "gdrive_fs", "dropbox": "dropboxdrivefs", "webdav": "webdav4", "wandb": "wandbfs", "dvc": "dvc",
    "lakefs": "lakefs-spec", "box": "boxfs", "tos": "tosfs", "libarchive": "libarchive-c", "root": "fsspec-xrootd", "git": "pygit2",
}  # fmt: skip
# One request at a time is far slower than what a store can give; these many bytes are under way at
# once.
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
    """A file system of fsspec, with the URL that it was opened by."""

    fs: Any
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def http(self) -> bool:
        """Whether it is plain HTTP, which has no listing and may not know parts of files."""
        protocol = getattr(self.fs, "protocol", "")
        return (
            "http" in protocol
            if isinstance(protocol, (tuple, list))
            else protocol in ("http", "https")
        )

    def label(self, path: str) -> str:
        """What is shown for a path of this storage."""
        try:
            url = str(self.fs.unstrip_protocol(path))
        except Exception:
            url = path
        return shown(url)

    @contextlib.contextmanager
    def errors(self, label: str) -> Iterator[None]:
        """Makes what a backend raises an error that names the place, and no secret."""
        try:
            yield
        except ReadError as error:
            raise (
                error if error.path else ReadError(error.reason, path=label, offset=error.offset)
            ) from None
        except Exception as caught:
            cause: BaseException = caught
            if isinstance(caught, FileNotFoundError):
                # Over HTTP whatever goes wrong is a missing file; what it was is behind it.
                if caught.__cause__ is None or getattr(caught.__cause__, "status", 0) == 404:
                    raise ReadError(
                        "there is no such file or folder, or you do not have access.", path=label
                    ) from None
                cause = caught.__cause__
            # Backends raise errors of their own kinds (botocore, aiohttp, google.auth ...), and
            # their traceback has the URL in it.
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
            raise ReadError(
                f"could not be read ({name}{': ' + message if message else ''}). {remedy}",
                path=label,
            ) from None


def connect(url: str, options: Mapping[str, Any] | None) -> tuple[Storage, str]:
    """The file system that a URL is on, and the path on it.

    Raises
    ------
    ReadError
        No such scheme is known, or its backend is not installed; says what to install.
    """
    import fsspec  # type: ignore[import-untyped]

    label = shown(url)
    scheme = re.split(r"://|::", url, maxsplit=1)[0].lower()
    settings = dict(options or {})
    try:
        if scheme in ("http", "https") and "::" not in url and "client_kwargs" not in settings:
            import aiohttp

            # aiohttp gives up after five minutes in all, which a large profile may take; a server
            # that sends nothing is another matter.
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
    """How to install what fsspec lacks for a URL; "" where it lacks nothing that is known."""
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
    """When a file was last changed, seconds since 1970; 0.0 where the storage does not say."""
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
                # Only plain HTTP writes times like a letter, and the module that reads them takes a
                # while to import.
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
        """The URL, without what is secret."""
        return self.storage.label(self.path)

    @property
    def size(self) -> int | None:
        """Bytes, where the storage says."""
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
            # A server that knows no parts would send the whole file.
            content = b""
            with self.storage.fs.open(self.path, "rb", block_size=0) as file:
                while len(content) < count and (block := file.read(count - len(content))):
                    content += block
            return content

    def open(self) -> BinaryIO:
        """A file that can be sought; downloaded first where the storage sends no parts."""
        with self.storage.errors(self.label):
            if self.size:
                file = self.storage.fs.open(self.path, "rb", block_size=_BLOCK)
                try:
                    if file.seekable():
                        # A server that knows no parts says so only now.
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
            buffer = (
                self._stream(size) if self.storage.http or size is None else self._parts(int(size))
            )
            if before != self._stamp():
                raise ReadError(
                    "changed while being read; load it again when the profiler has finished"
                    " writing."
                )
        return buffer

    def stamp(self) -> Stamp | None:
        """What the storage tells of its state; None where it tells nothing that changes with the
        content.
        """
        with self.storage.errors(self.label):
            state = self._stamp()
        content_keys = [
            key for key in _OF_CONTENT if key in state and not str(state[key]).startswith("W/")
        ]
        changed = time_of(state)
        if not content_keys and not changed:
            return None
        # The label does not tell URLs apart that differ in what is not shown.
        location = hashlib.sha256(
            f"{self.storage.url}\n{self.path}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        return Stamp(
            (location, *(f"{key} {value}" for key, value in sorted(state.items()))),
            0 if content_keys else int(changed * 1e9),
        )

    def _stamp(self) -> dict[str, Any]:
        """Size and what else tells one state of the file from another."""
        # Listings are cached by fsspec, also over a change.
        self.storage.fs.invalidate_cache()
        info = self.storage.fs.info(self.path)
        return {
            "size": info.get("size"),
            **{key: info[key] for key in _CHANGED if info.get(key) is not None},
        }

    def _told(self, done: int, size: int | None) -> None:
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
                            f"only {offset + len(block):,} of {size:,} bytes arrived. Try again; if it"
                            " is being written, wait."
                        )
                    view[offset : offset + len(block)] = block
                    offset += len(block)
                self._told(offset, size)
        return buffer

    def _stream(self, size: int | None) -> Buffer:
        grown = Growing(self.label, max(self.limit, size or 0))
        reported = 0
        with self.storage.fs.open(self.path, "rb", block_size=0) as file:
            while block := file.read(_STREAM):
                grown.add(block)
                if grown.size - reported >= _PART:
                    reported = grown.size
                    self._told(reported, size)
        # A server may have unpacked or packed the content on its way, so its size is no proof; a
        # connection that breaks is an error.
        return grown.buffer()


@dataclass(frozen=True)
class RemoteFolder:
    """A folder behind a URL, or the beginning of names that an object store takes for one."""

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
        """The URL, without what is secret."""
        return self.storage.label(self.path)

    def close(self) -> None:
        """Nothing is kept open."""

    def below(self, path: str) -> str:
        """The URL of a folder below."""
        return f"{self.label.rstrip('/')}/{printable(path)}" if path else self.label

    def listing(self) -> Listing:
        """Everything below, from the storage's own listing."""
        listing = Listing.of(
            [
                unquote(part) if self.storage.http else part
                for part in self.path.strip("/").split("/")
            ]
        )
        with self.storage.errors(self.label):
            # Runs that came after the last look would not be seen.
            self.storage.fs.invalidate_cache()
            if self.progress:
                self.progress(f"listing {self.label}")
            if self.storage.http:
                self._pages(listing)
            else:
                for path, info in sorted(self.storage.fs.find(self.path, detail=True).items()):
                    listing.take(
                        self._at(path), lambda path=path, info=info: self._file(path, info)
                    )  # type: ignore[misc]
        return listing

    def _file(self, path: str, info: Mapping[str, Any]) -> RemoteFile:
        return RemoteFile(self.storage, path, info, self.limit, self.progress)

    def _at(self, path: str) -> str:
        root = self.path.rstrip("/") + "/"
        return path[len(root) :] if path.startswith(root) else path.lstrip("/")

    def _pages(self, listing: Listing) -> None:
        """The pages that a web server shows for folders, link by link; only what lies below is
        followed.
        """
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
                relative = unquote(self._at(link.split("?")[0].split("#")[0]))
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
                    listing.take(relative, lambda link=link: self._file(link, {}))  # type: ignore[misc]
        if len(seen) >= _MOST_PAGES:
            listing.doubts.append(
                f"There are more than {_MOST_PAGES:,} subfolders; the rest were not examined."
            )

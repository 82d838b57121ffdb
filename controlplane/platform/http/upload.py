"""Upload handler that stores files on disk chunk by chunk, computes their checksum and enforces the size limit."""

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest

from controlplane.platform.datafolder import FULL_DISK_ERRORS

PROBLEM = "controlplane.upload_problem"


class StoredUpload(TemporaryUploadedFile):
    sha256 = ""


class LimitedUpload(FileUploadHandler):
    """Handler for files on disk, like Django's, with a size limit and a file name independent of the browser's."""

    file: StoredUpload

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        with self._stopping_when_full():
            # Django would take the suffix from the browser's file name, which may contain anything.
            self.file = StoredUpload("upload", self.content_type or "", 0, self.charset, self.content_type_extra)
        self._digest = hashlib.sha256()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        if start + len(raw_data) > settings.DATASET_MAX_BYTES:
            self._stop(f"The file is larger than {settings.DATASET_MAX_BYTES // 2**20:,} MiB, the limit here.")
        with self._stopping_when_full():
            self.file.write(raw_data)
        self._digest.update(raw_data)
        return None

    def file_complete(self, file_size: int) -> StoredUpload:
        with self._stopping_when_full():
            self.file.seek(0)  # flushes the file's buffer
        self.file.sha256 = self._digest.hexdigest()
        self.file.size = file_size
        self.file.name = self.file_name
        return self.file

    def upload_interrupted(self) -> None:
        self._drop()

    @contextmanager
    def _stopping_when_full(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (*FULL_DISK_ERRORS, errno.EFBIG):
                raise
            self._drop()
            self._stop("The disk of the control plane is full, so the file was not stored.")

    def _drop(self) -> None:
        if hasattr(self, "file"):
            with suppress(OSError):  # closing flushes again, and the disk may be full
                self.file.close()

    def _stop(self, reason: str) -> None:
        if self.request is not None:
            self.request.META[PROBLEM] = reason
        raise StopUpload(connection_reset=False)


def problem(request: HttpRequest) -> str:
    """Explain why the upload of this request was stopped; return "" if it wasn't."""
    return str(request.META.get(PROBLEM, ""))

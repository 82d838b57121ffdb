"""A YAML document on its way in: as a file, or pasted into a form."""

from __future__ import annotations

from django.http import HttpRequest

from controlplane.datasets import upload
from controlplane.safe_yaml import YamlRefused


def document(request: HttpRequest, most: int) -> bytes:
    """The field `file`, else the field `text`; one byte more than `most` is enough to tell that there was more.

    Raises YamlRefused.
    """
    if problem := upload.problem(request):
        raise YamlRefused(problem)
    file = request.FILES.get("file")
    if file is not None:
        return bytes(file.read(most + 1))
    text = request.POST.get("text", "")
    if not text.strip():
        raise YamlRefused("Choose a file, or paste a document.")
    return text.encode(errors="surrogatepass")

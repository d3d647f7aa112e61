"""Any answer or stream in OpenAI's form, as the fallback: its text, probabilities where it tells them, and when each
chunk arrived, where the client wrote that down ({"t": seconds, "data": {…}} a line).

OpenAI's API reference, "Chat completion chunk object". Chunks are about the steps of a server that handles one request
at a time; which tokens were drafted is not told.
"""

from __future__ import annotations

from decoders.importers.importer import Contents, Importer
from decoders.importers.request import ServerStep
from decoders.importers.source import LogSource

from .chat import answers, timings


def read(source: LogSource) -> Contents | None:
    """The requests in the file."""
    contents = Contents()
    for answer in answers(source.documents):
        request = answer.request
        if answer.is_stream and len(answer.chunks) > 1:
            times = timings(answer)
            request.steps = [ServerStep(count, ms=ms) for (count, _), ms in zip(answer.chunks, times, strict=True)]
            request.notes.append("a step here is a chunk of the stream: what was drafted in it is not told")
            stamps = [at for _, at in answer.chunks if at is not None]
            if len(stamps) == len(answer.chunks):
                request.decode_ms = round((stamps[-1] - stamps[0]) * 1e3, 3)
                request.untimed_tokens = answer.chunks[0][0]
        contents.requests.append(request)
    if contents.requests and source.unread:
        contents.notes.append(f"{source.unread} lines of the file are no JSON and were left out")
    return contents if contents.requests else None


IMPORTER = Importer("openai", "an OpenAI-like server", read, order=90)

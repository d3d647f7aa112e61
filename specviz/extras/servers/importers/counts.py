"""Any server's object of JSON that counts drafted and accepted tokens by a name that is known of some server: the
fallback for forms that no other importer knows.
"""

from __future__ import annotations

from decoders.importers.fields import about_drafts, flat, totals_of
from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.request import MOST_REQUESTS
from decoders.importers.source import LogSource
from decoders.importers.values import number


def read(source: LogSource) -> Contents | None:
    """Numbers of each object with both counts."""
    contents = Contents()
    for place, document in enumerate(source.documents):
        if "choices" in document.value or len(contents.numbers) == MOST_REQUESTS:
            continue
        totals = totals_of({path: value for path, value in flat(document.value) if number(value) is not None})
        if "drafted" in totals and "accepted" in totals:
            fields = about_drafts(document.value)
            contents.numbers.append(Numbers.of(f"object {place + 1}", fields, totals))
    return contents if contents.numbers else None


IMPORTER = Importer("counts", "A server's counts", read, order=95)

"""The metadata keys of a collection that another program made. The caller names them, or the usual keys apply.

Programs that use LangChain, LlamaIndex or Haystack store the origin of a chunk under a few usual keys. A sample of the
records decides which of these keys a collection uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

SAMPLED_RECORDS = 256
"""The number of records whose metadata shows which keys a collection uses."""
USUAL_SHARE = 0.9
"""The minimum share of the sampled records that must have a key."""
DOCUMENT_KEYS = ("source_id", "file_path", "source", "ref_doc_id", "doc_id", "document_id", "file_name")
"""The usual keys of a chunk's document, the most reliable first. Haystack shortens `file_path` to a name."""
TITLE_KEYS = ("title", "file_name", "file_path", "source")
INDEX_KEYS = ("split_id", "page")
"""The usual keys whose numbers order the chunks of a document."""
RECORD_KEYS = ("row", "seq_num")
"""The keys with which LangChain's loaders of CSV and JSON number the records of a file. Each record is a document."""
USUAL_KEYS = frozenset({*DOCUMENT_KEYS, *TITLE_KEYS, *INDEX_KEYS, *RECORD_KEYS})


@dataclass(frozen=True, slots=True)
class Keys:
    """The metadata keys of a foreign collection.

    If a key is empty, the collection has no such field, and no usual key is tried.

    Attributes:
        text: The key of the text. Without it, the record's document is the text.
        title: The key of the title.
        document: The key of the document's id. Without it, each record is a separate document.
        index: The key that orders the chunks of a document. Without it, they are in the order of the store.
        tokens: The key of the number of tokens. Without it, tokens are counted.
    """

    text: str | None = None
    title: str | None = None
    document: str | None = None
    index: str | None = None
    tokens: str | None = None

    def given(self) -> list[str]:
        """Return the names of the fields that the caller set."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def with_usual(self, usual: Mapping[str, str]) -> Keys:
        """Return these keys, and the collection's usual key for each key that the caller did not name."""
        missing = {name: key for name, key in usual.items() if getattr(self, name) is None}
        if self.document is not None:
            # A usual index key may not order the chunks of documents that the caller's key defines.
            missing.pop("index", None)
        completed = replace(self, **missing)
        return replace(completed, title=completed.title or None, document=completed.document or None)


def usual_keys(sample: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the usual keys that occur in this metadata, by field of `Keys`.

    A key does not identify a document if chunks with different titles have the same value under it. For example,
    `source` can be `wikipedia` in every record.
    """
    common = {
        key
        for key in USUAL_KEYS
        if sample and sum(entry_of(metadata, key) != "" for metadata in sample) >= USUAL_SHARE * len(sample)
    }
    documents = (key for key in DOCUMENT_KEYS if key in common and _has_one_title(sample, key))
    document = None if common.intersection(RECORD_KEYS) else next(documents, None)
    found = {
        "title": next((key for key in TITLE_KEYS if key in common), None),
        "document": document,
        "index": next((key for key in INDEX_KEYS if key in common), None) if document else None,
    }
    return {name: key for name, key in found.items() if key is not None}


def entry_of(metadata: Mapping[str, Any], key: str | None) -> str:
    """Return an entry as text. If there is no entry, return an empty string.

    LlamaIndex writes the text "None" for a missing document.
    """
    value = metadata.get(key) if key else None
    return "" if value is None or value == "None" else str(value)


def keys_notice(collection: str, named: Keys, used: Keys) -> str:
    """Return a notice about the keys that the caller did not name. If there are none, return an empty string."""
    uses = [
        f"{verb} by {key!r} (--{field}-key, in Python {field}_key=)"
        for verb, field, key, option in (
            ("grouped into documents", "document", used.document, named.document),
            ("titled", "title", used.title, named.title),
        )
        if key is not None and option is None
    ]
    if not uses:
        return ""
    return (
        f"the chunks of collection {collection!r} are {' and '.join(uses)}, as their metadata suggests. To change "
        "that, name another key. To use no key, pass an empty name."
    )


def _has_one_title(sample: Sequence[Mapping[str, Any]], key: str) -> bool:
    titles = defaultdict[str, list[str]](list)
    for metadata in sample:
        titles[entry_of(metadata, key)].append(entry_of(metadata, "title"))
    shared = [group for group in titles.values() if len(group) > 1]
    return sum(len(set(group)) == 1 for group in shared) >= USUAL_SHARE * len(shared)

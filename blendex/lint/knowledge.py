"""What the catalog knows of the content of sources: findings of builds, while the source is the one that they read."""

from __future__ import annotations

from collections.abc import Sequence

from blendex.blend.model import Source
from blendex.catalog import sources as catalog
from blendex.catalog.engine import UnitOfWork
from blendex.errors import BlendexError
from blendex.formats.findings import Finding
from blendex.formats.kinds import KINDS, recipe
from blendex.lint.ground import Seen
from blendex.storage.local import LocalStorage


class CatalogKnowledge:
    """What the catalog knows.

    Args:
        work: of the catalog.
        storage: by which tokens are compared: a source that has changed since is not known any more.
    """

    def __init__(self, work: UnitOfWork, storage: LocalStorage) -> None:
        self._work = work
        self._storage = storage

    def seen(self, sources: Sequence[tuple[Source, str]]) -> dict[Source, Seen]:
        """Of those whose content is known as it is now."""
        by_recipe: dict[str, list[tuple[Source, str]]] = {}
        for source, address in sources:
            if source.kind in KINDS and not KINDS[source.kind].derived:
                by_recipe.setdefault(recipe(source.kind, ""), []).append((source, address))
        found: dict[Source, Seen] = {}
        for name, pairs in by_recipe.items():
            addresses = list(dict.fromkeys(address for _, address in pairs))
            tokens = {
                address: None if isinstance(answer, BlendexError) else answer.token
                for address, answer in zip(addresses, self._storage.stat_many(addresses), strict=True)
            }
            with self._work.read() as session:
                known = {
                    item.address: Seen(
                        tuple(Finding.from_dict(data) for data in item.findings),
                        BlendexError.from_dict(item.error) if item.error is not None else None,
                    )
                    for item in catalog.known(session, name, addresses)
                    if (item.has_content or item.error is not None)
                    and not item.racy
                    and item.token == tokens[item.address]
                }
            found |= {source: known[address] for source, address in pairs if address in known}
        return found

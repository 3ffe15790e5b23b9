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


def known_now(work: UnitOfWork, sources: Sequence[tuple[Source, str, str]]) -> dict[Source, Seen]:
    """What the catalog knows of the content of sources.

    Args:
        work: of the catalog.
        sources: (source, address, the token that it has now); what has changed since it was read is not known any more.
    """
    by_recipe: dict[str, list[tuple[Source, str, str]]] = {}
    for item in sources:
        kind = item[0].kind
        if kind in KINDS and not KINDS[kind].derived:
            by_recipe.setdefault(recipe(kind, ""), []).append(item)
    found: dict[Source, Seen] = {}
    for name, items in by_recipe.items():
        tokens = {address: token for _, address, token in items}
        with work.read() as session:
            known = {
                row.address: Seen(
                    tuple(Finding.from_dict(data) for data in row.findings),
                    BlendexError.from_dict(row.error) if row.error is not None else None,
                )
                for row in catalog.known(session, name, list(tokens))
                if (row.has_content or row.error is not None) and not row.racy and row.token == tokens[row.address]
            }
        found |= {source: known[address] for source, address, _ in items if address in known}
    return found


class CatalogKnowledge:
    """What the catalog knows, asked from here.

    Args:
        work: of the catalog.
        storage: by which tokens are compared.
    """

    def __init__(self, work: UnitOfWork, storage: LocalStorage) -> None:
        self._work = work
        self._storage = storage

    def seen(self, sources: Sequence[tuple[Source, str]]) -> dict[Source, Seen]:
        """Of those whose content is known as it is now."""
        stats = self._storage.stat_many([address for _, address in sources])
        return known_now(
            self._work,
            [
                (source, address, stat.token)
                for (source, address), stat in zip(sources, stats, strict=True)
                if not isinstance(stat, BlendexError)
            ],
        )

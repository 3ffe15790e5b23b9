"""The YAML files of one blend: the posted one, and those that ``input_cfg`` names."""

from __future__ import annotations

import posixpath

from blendex.blend.interpolate import Document
from blendex.blend.load import Limits, MapNode, Node, Reader, SeqNode, parse
from blendex.blend.world import World, has_scheme
from blendex.errors import BlendexError, Code


class Files:
    """Reads and parses every file of a blend once, within the limits of all of them together.

    Args:
        text: the posted YAML.
        file: its name; when absolute, relative ``input_cfg`` are looked for beside it, else below ``world.base``.
        world: what the submission brought along.
        reader: how nested files are read.
        limits: what the blend may ask for.
        trees: of texts that were parsed before, within the same limits; filled here. Nobody changes a tree.

    Raises:
        BlendexError: the posted text cannot be read.
    """

    def __init__(
        self,
        text: bytes,
        file: str,
        world: World,
        reader: Reader,
        limits: Limits,
        trees: dict[bytes, Node] | None = None,
    ) -> None:
        self.world = world
        self.reader = reader
        self.limits = limits
        self.texts: dict[str, bytes] = {}
        self._nodes = 0
        self._trees = {} if trees is None else trees
        self._known: dict[str, Document] = {}
        self._bytes: dict[Document, bytes] = {}
        folder = posixpath.dirname(file) if file.startswith("/") else world.base
        self.posted = Document(file, folder, self._tree(text, file))
        self._bytes[self.posted] = text

    def text(self, document: Document) -> bytes:
        """The bytes of a file that was read."""
        return self._bytes[document]

    def open(self, path: str, declaring: Document) -> tuple[Document, str]:
        """The file that ``input_cfg: path`` in ``declaring`` names, and what training would do differently.

        A relative path means beside the declaring file: so do ``build_indexes.py`` and training's
        ``parse_and_combine_datasets`` (NeMo Speech main) where a blend names another one. Only what a training
        config itself names is looked for in the working folder by training, that is below ``world.base``: where
        there is such a file, it is the one.

        Raises:
            BlendexError: PATH_UNSUPPORTED, RELATIVE_WITHOUT_BASE, what the reader and ``parse`` raise.
        """
        if path.startswith("pipe:"):
            raise BlendexError(
                Code.PATH_UNSUPPORTED,
                f"The nested YAML {path} is no file path.",
                next_step="Name a copy on a shared filesystem.",
            )
        if has_scheme(path):
            return self._known_or_read(path), ""
        if not path.startswith("/") and declaring.folder is None:
            raise BlendexError(
                Code.RELATIVE_WITHOUT_BASE,
                f"The nested YAML {path} is relative, and the submission has no base.",
                next_step="Say which absolute folder relative paths mean (base), or write an absolute path.",
            )
        beside = posixpath.join(declaring.folder or "", path)
        beside = beside if has_scheme(beside) else posixpath.normpath(beside)
        config = declaring is self.posted and isinstance(declaring.root, MapNode) and not path.startswith("/")
        base = self.world.base
        if not config or (base is not None and posixpath.normpath(base) == declaring.folder):
            return self._known_or_read(beside), ""
        if base is not None:
            try:
                return self._known_or_read(posixpath.normpath(posixpath.join(base, path))), (
                    f"{path} is taken from the working folder, as training does; NeMo's builder of indexes would "
                    f"look beside the config."
                )
            except BlendexError as error:
                if error.code not in (Code.NESTED_MISSING, Code.PATH_OUTSIDE_ROOTS):
                    raise
        return self._known_or_read(beside), (
            f"{path} is taken from beside the config; training would look for it in its working folder."
        )

    def _known_or_read(self, seen: str) -> Document:
        address = self.world.address(seen)
        if address not in self._known:
            text = self.reader.read(address)
            document = Document(seen, posixpath.dirname(seen), self._tree(text, seen))
            self.texts[address] = self._bytes[document] = text
            self._known[address] = document
        return self._known[address]

    def _tree(self, text: bytes, name: str) -> MapNode | SeqNode:
        root = self._trees[text] if text in self._trees else parse(text, name, self.limits)
        self._trees[text] = root
        if not isinstance(root, MapNode | SeqNode):
            raise BlendexError(
                Code.BLEND_SHAPE,
                "The YAML is a single value; expected a mapping or a list.",
                file=name,
                line=1,
                next_step="Write a list of entries, or a config.",
            )
        self._nodes += root.size
        if self._nodes > self.limits.nodes:
            raise BlendexError(
                Code.BLEND_TOO_MANY_NODES,
                f"The files of the blend have more than {self.limits.nodes:,} nodes together.",
                file=name,
                next_step="Split the blend.",
            )
        return root

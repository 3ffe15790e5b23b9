"""Listings of the tests' AIStore: pages in msgpack, folders, and what each entry tells."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.support.aisstate import PROPS, Item
from tests.support.aiswire import Wire


class Listing(Wire):
    """A node that lists."""

    def _list(self, objects: dict[str, Item]) -> None:
        value = json.loads(self.body)["value"]
        prefix, props = value.get("prefix", ""), set(filter(None, value.get("props", "").split(",")))
        if props - PROPS:
            self._error(400, f"unknown property {sorted(props - PROPS)[0]}")
            return
        flags = int(value.get("flags") or 0)
        after = value.get("continuation_token") or value.get("start_after") or ""
        size = min(int(value.get("pagesize") or value.get("page_size") or 0) or self.cluster.page, self.cluster.page)
        entries: list[dict[str, Any]] = []
        seen: set[str] = set()
        for key in sorted(objects):
            if not key.startswith(prefix):
                continue
            name, folder = key, False
            if flags & (1 << 11):
                head, slash, _ = key[len(prefix) :].partition("/")
                if slash:
                    name, folder = prefix + head + "/", True
            if name <= after or name in seen:
                continue
            seen.add(name)
            item = objects[key]
            entry: dict[str, Any] = {"n": name}
            if folder:
                entry["f"] = 1 << 7
            else:
                entry |= {"s": len(item.data), "f": (1 << 6) if item.present else 0}
                if "checksum" in props and item.present and not self.cluster.weak:
                    entry["cs"] = item.checksum
                if "version" in props and not self.cluster.weak:
                    entry["v"] = str(item.version)
            entries.append(entry)
            if len(entries) > size:
                break
        more = len(entries) > size
        entries = entries[:size]
        answer = {
            "UUID": "uuid-1", "ContinuationToken": entries[-1]["n"] if more else "", "Flags": 0, "Entries": entries,
        }  # fmt: skip
        self._send(200, msgspec.msgpack.encode(answer), {"Content-Type": "application/msgpack"})

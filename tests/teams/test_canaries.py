"""What is secret, or stands in records, is planted and looked for in all that anybody is told."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from service.rules import ADMIN, LOOKUP, OPEN, RULES
from tests.stores.test_canary import all_that_is_kept
from tests.support import corpus
from tests.teams.conftest import STORE_SECRET, Accounts

LINE = "canary transcript nobody may read"
MEMBER = "canary_member"


def plant(accounts: Accounts) -> str:
    """A dataset of team a whose manifests and tars do not fit, with findings of many sorts; the blend over it."""
    folder = accounts.service.data / "a" / "canaries"
    rows = [json.dumps({"audio_filepath": f"{MEMBER}_{i}.wav", "duration": 1.0, "text": LINE}) for i in range(4)]
    corpus.put(folder / "good.json", ("\n".join(rows) + "\n").encode())
    corpus.put(folder / "odd.json", ("\n\n".join(rows) + f'\n["{LINE}"]\n{{"text": "{LINE}"').encode())
    names = [f"{MEMBER}_{i}.wav" for i in range(4)]
    corpus.put(folder / "good.tar", corpus.tar(names))
    corpus.put(folder / "odd.tar", corpus.tar([f"other_{MEMBER}.wav", *names, f"{MEMBER}_x.txt", names[0]]))
    whole = corpus.tar(names)
    corpus.put(folder / "cut.tar", whole[: len(whole) // 2])
    entry = "- type: nemo_tarred\n  manifest_filepath: {0}/{1}.json\n  tarred_audio_filepaths: {0}/{2}.tar\n"
    pairs = (("good", "good"), ("odd", "odd"), ("good", "odd"), ("odd", "cut"))
    # Of one build a mirror comes, of the other an error.
    return "".join(entry.format(folder, *pair) for pair in pairs)


@pytest.mark.slow
def test_nothing_secret_is_told(
    accounts: Accounts, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for noisy in ("httpx", "httpcore", "sse_starlette"):
        caplog.set_level(logging.WARNING, noisy)  # the clients of this test tell what they send
    blend = plant(accounts)
    good = "\n".join(blend.splitlines()[:3]) + "\n"
    ids = []
    for text, query in ((blend, {}), (blend, {"on_bad": "exclude"}), (good, {"name": "canaries"})):
        ids.append(accounts.built(accounts.a, text, lint="off", **query))
    assert ids[0]["state"] == "failed"
    assert ids[2]["state"] == "ready", ids[2]
    remote = "- type: nemo\n  manifest_filepath: s3://speech-a/x.json\n"
    away = accounts.a.post("/v1/builds?dry_run=1", content=remote)
    foreign = accounts.b.post("/v1/builds?dry_run=1", content=remote)
    assert "store_unknown" in foreign.text
    assert "speech-b" not in foreign.text
    told: dict[str, str] = {"away": away.text, "foreign": foreign.text}
    everybody = {"a": accounts.a, "b": accounts.b, "admin": accounts.admin, "nobody": accounts.nobody}
    with accounts.client(None) as person:
        page = person.get("/login")
        csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
        assert csrf is not None
        person.post("/login", data={"csrf": csrf[1], "token": accounts.secrets["a/build"]})
        session = person.cookies["blendex_session"]
        everybody["person"] = person
        for who, client in everybody.items():
            for method, path in sorted(RULES):
                wanted = {
                    "person": not path.startswith("/v1"),
                    "admin": RULES[method, path] == ADMIN,
                    "nobody": RULES[method, path] in (OPEN, LOOKUP),
                }.get(who, True)
                if method != "GET" or path.endswith(("/live", "/events")) or not wanted:
                    continue
                for build in ids[::2] if "{build}" in path else ids[2:]:
                    values = {"build": build["id"], "key": ids[2]["mirror"], "name": "canaries"}
                    address = path.format(**values)
                    answer = client.get(address)
                    assert answer.status_code < 500 or address == "/readyz", (who, address)
                    told[f"{who} {address}"] = f"{answer.text}{answer.headers}"
    for who in ("b", "nobody"):
        told[f"{who} text"] = everybody[who].get(f"/v1/builds/{ids[0]['id']}/path").text
    told["log"] = "\n".join(str(record.__dict__) for record in caplog.records if record.name != "asyncio")
    told["streams"] = "".join(capfd.readouterr())
    keys = (accounts.secrets["a/build"], accounts.secrets["a/admin"], session, STORE_SECRET)
    for where, text in told.items():
        for canary in keys:
            assert canary not in text or "set-cookie" in text, (where, canary)
        assert LINE not in text, where
        assert MEMBER not in text, where
        # What is team a's: another one is not even told its names.
        if where.split()[0] in ("b", "nobody"):
            assert "a/canaries" not in text, where
    assert any("canaries" in told[f"a {address}"] for address in ("/v1/builds", "/builds"))
    # Of tokens and sessions only hashes are kept, of a store's secret nothing.
    root = Path(accounts.service.site.root.path)
    for name, data in all_that_is_kept(root).items():
        for canary in keys:
            assert canary.encode() not in data, (name, canary)

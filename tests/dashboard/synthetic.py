"""Rows of builds that nobody could run in a test: 400,000 sources, half way through."""

from __future__ import annotations

from sqlalchemy import func, select, update

from blendex.builds.site import Site
from blendex.catalog import blobs, builds, dialect, states, workers
from blendex.catalog import units as units_catalog
from blendex.catalog.models import BuildEvent, Subscription, Unit

SOURCES = 400_000
EACH = 20
DATASETS = 80
WORKERS = 48


def big(site: Site, name: str = "/data/blends/granary-everything.yaml", sources: int = SOURCES) -> str:
    """The id of a build of that many sources, 20 to a unit: many done, some in hand, a few died, the rest waiting."""
    share = sources // DATASETS
    text = "".join(
        f"- type: nemo_tarred\n  manifest_filepath: /data/set{number}/manifest__OP_0..{share // 2 - 1}_CL_.json\n"
        f"  tarred_audio_filepaths: /data/set{number}/audio__OP_0..{share // 2 - 1}_CL_.tar\n  weight: 0.0125\n"
        for number in range(DATASETS)
    )
    submission = {"text": text, "nested": {}, "world": {"base": None, "variables": {}, "env": {}, "view": []}}
    options = {"compat": "", "allow": [], "on_bad": "fail", "packs": "auto", "sidecars": "unpacked"}
    with site.work.write() as session:
        build, _ = builds.create(session, owner="ada", identity=name, submission=submission, file=name, options=options)
        now = states.now(session)
        began = now - 1_800
        build.state, build.sources, build.reused, build.bytes = "indexing", sources, 61_440, 38 * 10**12
        build.stages = {"queued": began - 60, "planning": began - 55, "indexing": began}
        build.names, build.version = ["granary-v4"], 7
        build.labels = {"project": "granary", "stage": "pretrain"}
        for at, event, about in (
            (began - 60, "submitted", {"who": "ada"}),
            (began - 55, "planning", {}),
            (began, "indexing", {"sources": sources, "reused": 61_440}),
        ):
            session.add(BuildEvent(build=build.id, at=at, event=event, about=about))
        plan = {"datasets": [], "derived": [], "warnings": [], "entries": DATASETS}
        build.plan, build.problems = blobs.put_json(session, plan), blobs.put_json(session, [])
        described = []
        for number in range(DATASETS):
            rows = [("nemo_tar", f"/data/set{number}/audio_{shard}.tar") for shard in range(share)]
            described.append(
                {
                    "position": number,
                    "name": f"granary/set{number:02d}",
                    "type": "nemo_tarred",
                    "weight": 0.0125,
                    "share": 0.0125,
                    "list_hash": blobs.put(session, blobs.pack_list(rows)),
                    "sources": share,
                }
            )
        builds.set_datasets(session, build.id, described)
        count = sources // EACH
        payload = units_catalog.pack({"compat": "", "sources": [["nemo_tar", "/data/set7/audio_3.tar", "", False, ""]]})
        units = []
        done = int(count * 0.61)
        for number in range(count):
            cost = 30_000_000 + number % 17 * 1_000_000
            state, leased_at, ended_at, worker = "waiting", None, None, None
            if number < done:
                at = began + 1_790 * number / done
                state, leased_at, ended_at, worker = (
                    "done",
                    at,
                    at + 4 + number % 5,
                    f"cpu-{number % WORKERS:02d}.11.aa",
                )
                if number % 1_001 == 1_000:
                    state = "failed"
            elif number < done + WORKERS:
                state, worker = "leased", f"cpu-{number % WORKERS:02d}.11.aa"
                leased_at = now - (600 if number == done else 3 + number % 7)
            units.append(
                {
                    "work": "index", "build": build.id, "state": state, "fence": 1, "attempts": 0, "priority": 0,
                    "cost": cost, "turn": 0, "memory": 2**29, "payload": payload, "worker": worker,
                    "lease_until": now + 86_400 if state == "leased" else None, "leased_at": leased_at,
                    "ended_at": ended_at, "waiting_since": began,
                }
            )  # fmt: skip
        session.execute(dialect.table(Unit).insert(), units)
        session.flush()
        ids = session.execute(dialect.table(Unit).select().with_only_columns(Unit.id).where(Unit.build == build.id))
        rows = [{"unit": row.id, "build": build.id, "sources": EACH} for row in ids]
        session.execute(dialect.table(Subscription).insert(), rows)
        first = session.scalars(select(Unit).where(Unit.build == build.id, Unit.state == "leased").limit(1)).one()
        workers.beat(
            session, str(first.worker), 86_400,
            {
                "host": "cpu-00", "pid": 11, "version": "0.1.0", "state": "working", "classes": ["index"], "slots": 8,
                "busy": 1, "budget": 16 * 10**9, "taken": 2**29, "used": 3 * 10**8,
                "in_hand": [{"unit": first.id, "work": "index", "source": "/data/set7/audio_3.tar"}],
            },
        )  # fmt: skip
        return build.id


def freshen(site: Site, build: str) -> None:
    """Let a build be as if the last of its units had ended a moment ago."""
    with site.work.write() as session:
        latest = session.execute(select(func.max(Unit.ended_at)).where(Unit.build == build)).scalar_one()
        later = states.now(session) - latest - 0.5
        session.execute(
            update(Unit)
            .where(Unit.build == build)
            .values(leased_at=Unit.leased_at + later, ended_at=Unit.ended_at + later)
        )
        row = builds.get(session, build)
        assert row is not None
        row.stages = {name: at + later for name, at in row.stages.items()}
        row.created_at += later


LISTED = (
    ("granary-v3.yaml", "ready", "ada", 81_204, 81_201, ["granary-v3"], 3_600 * 5),
    ("fleurs-and-voxpopuli.yaml", "failed", "grace", 1_912, 0, [], 3_600 * 7),
    ("asr-multilingual.yaml", "ready", "mary", 12_480, 9_152, ["asr-multi"], 3_600 * 26),
    ("tts-studio.yaml", "cancelled", "edith", 640, 0, [], 3_600 * 28),
    ("granary-v2.yaml", "ready", "ada", 80_950, 3_200, ["granary-v2"], 86_400 * 6),
)


def several(site: Site) -> None:
    """Builds that ended, and one that waits, for a list to look at."""
    options = {"compat": "", "allow": [], "on_bad": "fail", "packs": "auto", "sidecars": "unpacked"}
    waiting = ("speechlm-sft.yaml", "queued", "mary", 0, 0, [], 20)
    for file, state, owner, sources, reused, names, age in (*reversed(LISTED), waiting):
        with site.work.write() as session:
            build, _ = builds.create(
                session,
                owner=owner,
                identity=file,
                submission={"text": "", "nested": {}, "world": {}},
                file=f"/data/blends/{file}",
                options=options,
            )
            build.state, build.sources, build.reused, build.names = state, sources, reused, names
            build.created_at -= age
            build.stages = {"queued": build.created_at}
            if state == "failed":
                build.error = {"code": "tar_truncated", "message": "the data of the last member is cut off"}

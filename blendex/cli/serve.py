"""``blendex serve``: API and workers in one process, the embedded form."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

from blendex.builds.loop import ClaimLoop
from blendex.builds.site import open_site
from blendex.cli.local import settings_for
from blendex.errors import BlendexError, Code
from blendex.runtime.slots import Slots


def serve(host: str, port: int, allow_root: list[Path], root: Path | None) -> None:
    """Listen until a signal; what runs then is handed back to the catalog.

    Args:
        host: address.
        port: port; 0 takes a free one, which the first line on standard output tells.
        allow_root: folders in which sources may be read; none means the setting, or the current folder.
        root: the root of mirrors.
    """
    try:
        import uvicorn

        from service.app import create_app
    except ModuleNotFoundError as error:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"serving needs the extra 'serve' ({error.name} is not installed).",
            next_step="pip install 'blendex[serve]'",
        ) from error

    settings = settings_for(root)
    roots = tuple(os.path.realpath(path) for path in allow_root) or settings.allowed_roots or (os.getcwd(),)
    site = open_site(settings, roots)
    if site.notice:
        sys.stderr.write(site.notice + "\n")
    loop = ClaimLoop(site, Slots(settings.slots, "blendex.units"))
    worker = threading.Thread(target=loop.run, name="blendex-claims", daemon=True)
    previews = Slots(1, "blendex.units")
    listener = socket.create_server((host, port), reuse_port=False)
    sys.stdout.write(f"http://{host}:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    sys.stderr.write(f"mirrors under {site.root.path}; sources may be read in {', '.join(roots)}\n")
    worker.start()
    app = create_app(site, previews, loop.wake, alive=worker.is_alive)
    # uvicorn raises the signal that ended it once more, for the handler it found. Without one of ours the process
    # would end there, and what its children had in hand would wait for its leases to run out.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        loop.stop()
        worker.join()
        previews.close()

"""Live pages served for as long as a block lasts, and a real browser where there is one."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from consilience.sites.pages.server import Page, serve

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def served_page(page: Page) -> Iterator[str]:
    """Serve a page in a thread; yields its address."""
    import uvicorn

    servers, said = list[uvicorn.Server](), list[str]()

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", Kept)
        thread = threading.Thread(target=serve, args=(page, 0), kwargs={"say": said.append})
        thread.start()
        try:
            for _ in range(1000):
                if servers and servers[0].started:
                    break
                time.sleep(0.01)
            yield said[0].removeprefix(f"{page.title}: ")
        finally:
            for server in servers:
                server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()  # an open stream does not hold it up

"""What the extension does for the kernels of its server: their answers wait for no
acknowledgement.
"""

from __future__ import annotations

import pytest
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from nbprof.server.extension import at_once


class Handler:
    """A websocket of a server, open or left by its page."""

    def __init__(self, here):
        self.here, self.nodelay = here, False

    def set_nodelay(self, value):
        assert self.here
        self.nodelay = value


class Connection:
    def __init__(self, handler):
        self.websocket_handler = handler

    async def connect(self):
        return "connected"


def used(jp_serverapp):
    return jp_serverapp.web_app.settings["kernel_websocket_connection_class"]


def test_the_server_uses_it_and_all_else_is_as_it_was(jp_serverapp):
    assert issubclass(used(jp_serverapp), ZMQChannelsWebsocketConnection)
    assert used(jp_serverapp) is not jp_serverapp.kernel_websocket_connection_class


class TestOff:
    @pytest.fixture
    def options(self):
        return {"nodelay": False}

    def test_an_administrator_can_leave_the_server_alone(self, jp_serverapp):
        assert used(jp_serverapp) is jp_serverapp.kernel_websocket_connection_class


async def test_what_a_kernel_says_is_sent_at_once():
    handler = Handler(here=True)
    assert await at_once(Connection)(handler).connect() == "connected"
    assert handler.nodelay is True


@pytest.mark.parametrize("handler", [None, Handler(here=False)])
async def test_a_page_that_has_left_and_a_handler_of_another_kind_are_no_error(handler):
    assert await at_once(Connection)(handler).connect() == "connected"

"""The workers of a Cloud TPU by its name, from the Cloud TPU API (version 2).

Workers answer inside of their network only, so this is asked for on a machine of Google Cloud,
whose metadata server has what the API needs: the project, the zone, and a token of the machine's
service account. https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes and
https://cloud.google.com/compute/docs/metadata/overview describe both.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from nbprof.capture.remote.addresses import Address, Tpu
from nbprof.capture.remote.progress import Tell
from nbprof.core.errors import CaptureError

API = "https://tpu.googleapis.com/v2"
METADATA_S, API_S = 5.0, 30.0
"""Time limits, in seconds."""
_MOST = 16 * 2**20
_ELSEWHERE = "elsewhere, give the addresses of its workers: host:6009"


def workers_of(named: Iterable[Address | Tpu], tell: Tell) -> list[Address]:
    """The addresses, each once, with those of its workers in place of each TPU.

    Raises
    ------
    CaptureError
        A TPU that cannot be looked up, or has no workers.
    """
    addresses: dict[Address, None] = {}
    for address in named:
        if isinstance(address, Tpu):
            tell(f"looking up the workers of {address.name}")
            addresses.update(dict.fromkeys(_workers(address)))
        else:
            addresses[address] = None
    return list(addresses)


def _workers(tpu: Tpu) -> list[Address]:
    project = tpu.project or _metadata(tpu, "project/project-id")
    zone = tpu.zone or _metadata(tpu, "instance/zone").rpartition("/")[2]
    try:
        token = str(
            json.loads(_metadata(tpu, "instance/service-accounts/default/token"))["access_token"]
        )
    except (ValueError, KeyError, TypeError):
        raise CaptureError(
            f"{tpu}: this machine has no service account that could look up the TPU; {_ELSEWHERE}"
        ) from None
    node = _node(tpu, project, zone, token)
    state = node.get("state")
    if state not in (None, "READY"):
        raise CaptureError(f"{tpu}: it is in the state {state}, so its workers cannot be recorded")
    endpoints = node.get("networkEndpoints")
    if not isinstance(endpoints, list):
        endpoints = []
    addresses = []
    for endpoint in endpoints:
        if not isinstance(endpoint, dict):
            continue
        host = endpoint.get("ipAddress")
        if not isinstance(host, str) or not host:
            continue
        if ":" in host:
            host = f"[{host}]"
        addresses.append(Address(host, tpu.port))
    if not addresses:
        raise CaptureError(f"{tpu}: the Cloud TPU API lists no worker of it")
    return addresses


def _metadata(tpu: Tpu, path: str) -> str:
    """A value of the metadata server, at the address that Google's own clients use."""
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"}
    )
    try:
        # No proxy knows the machine's own server.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=METADATA_S
        ) as answer:
            return str(answer.read(_MOST).decode())
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise CaptureError(
            f"{tpu}: the metadata server of Google Cloud did not answer ({_why(error)}); a TPU is"
            f" found by name only from a machine of Google Cloud; {_ELSEWHERE}"
        ) from None


def _node(tpu: Tpu, project: str, zone: str, token: str) -> dict[str, Any]:
    project, zone, name = (quote(part, safe="") for part in (project, zone, tpu.name))
    path = f"projects/{project}/locations/{zone}/nodes/{name}"
    request = urllib.request.Request(f"{API}/{path}")  # noqa: S310
    # Not sent to another host, should the answer redirect to one.
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=API_S) as answer:  # noqa: S310
            node = json.loads(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            reason = (
                f"there is no such TPU in zone {zone} of project {project}: name them as"
                f" tpu://PROJECT/ZONE/{tpu.name}"
            )
        elif error.code in (401, 403):
            reason = (
                f"this machine may not look it up in project {project} (HTTP {error.code}): its"
                " service account needs the role TPU Viewer (roles/tpu.viewer) and the scope"
                " cloud-platform"
            )
        else:
            reason = f"the Cloud TPU API answered with HTTP {error.code}; {_ELSEWHERE}"
        raise CaptureError(f"{tpu}: {reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CaptureError(
            f"{tpu}: the Cloud TPU API did not answer ({_why(error)}); {_ELSEWHERE}"
        ) from None
    if not isinstance(node, dict):
        return {}
    return node


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return f"{str(reason) or type(error).__name__}"

"""Hugging Face hub: the time an answer may take, and refusals in sentences, for all commands that write there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from decoders.errors import UserError

ANSWER_S = 60.0  # for one answer: the client by itself waits for ever


@contextmanager
def hub_faults(name: str, noun: str, state: str) -> Iterator[None]:
    """Turn refusals of the hub into sentences. ``noun``: a dataset or Space of the name; ``state``: what is there of it
    now.
    """
    from huggingface_hub import get_session
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    get_session().timeout = ANSWER_S
    try:
        yield
    except HFValidationError:
        raise UserError(f"{name} is no name of a {noun} on the hub: give owner/name") from None
    except LocalTokenNotFoundError:
        raise UserError(f"the hub does not know who you are: sign in with `hf auth login`; {state}") from None
    except HfHubHTTPError as fault:
        status = fault.response.status_code
        advice = {
            401: "sign in with `hf auth login`", 403: "sign in as someone who may write there (`hf auth login`)",
            409: "somebody wrote at the same time: do it again", 412: "somebody wrote at the same time: do it again",
        }.get(status, "try again later")  # fmt: skip
        raise UserError(f"the hub refused {name} (HTTP {status}): {advice}; {state}") from None
    except (OfflineModeIsEnabled, OSError, *_network_errors()) as fault:
        raise UserError(
            f"the hub does not answer ({type(fault).__name__}): {state}; check the connection and HF_HUB_OFFLINE, or "
            "give a folder"
        ) from None


def _network_errors() -> tuple[type[Exception], ...]:
    """The errors of the hub's HTTP client, which is httpx or httpx2, by its version."""
    clients = (sys.modules.get(name) for name in ("httpx", "httpx2"))
    return tuple(client.HTTPError for client in clients if client is not None)

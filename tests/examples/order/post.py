"""The service that sends receipts: `uvicorn post:service`.

A job may be posted twice, as by a worker that died before it had the answer. Its id is
the same then, and the receipt is sent once.
"""

import json
import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

SENT = Path(os.environ["SHOP_RECEIPTS"])  # a folder, a file for each receipt


async def send_receipt(request: Request) -> JSONResponse:
    """Send a receipt, once for each job."""
    job = await request.json()
    receipt = SENT / f"{job['id']}.json"
    first = SENT / "has-been-asked"
    if not first.exists():  # busy, the first time
        first.touch()
        return JSONResponse(None, 503, {"Retry-After": "1"})
    if not receipt.exists():
        receipt.write_text(json.dumps(job["payload"]))  # here it would be sent
    return JSONResponse({"sent_to": job["payload"]["to"]})


service = Starlette(routes=[Route("/receipts", send_receipt, methods=["POST"])])

"""A pause that an event cuts short."""

import asyncio


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, no longer than so many seconds; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True

"""Time obstore on the objects of a run.

Usage: `python peer_obstore.py open|one|all BUCKET PREFIX VALUES`.

Requests only: the index is not parsed, records are not verified. obstore refuses the answers of rclone to ranges
(status 200 with a range), so it reads whole event objects of 11 kB: one for each value, or each object once in one
call. Runs in .venv-peers; the endpoint is in AWS_ENDPOINT_URL.
"""

import asyncio
import resource
import sys
import time

import obstore
from clock import print_result
from obstore.store import S3Store

TENSORS = 10
AT_ONCE = 64


def keys_of(store, prefix):
    """Return the keys below a prefix."""
    return [found["path"] for page in obstore.list(store, prefix, chunk_size=1000) for found in page]


async def all_of(store, keys):
    """Return the contents of the objects."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(key):
        async with places:
            return bytes(await (await obstore.get_async(store, key)).bytes_async())

    return await asyncio.gather(*[one(key) for key in keys])


def main(what, bucket, prefix, count):
    """Print wall and CPU seconds, and the MB that the work added to the peak."""
    store = S3Store(bucket, client_options={"allow_http": True})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps = range(int(count) // TENSORS)
    events = [f"{prefix}/events/{step:012}/{step:012}_worker_0.tfevents" for step in steps]
    cpu, wall = time.process_time(), time.perf_counter()
    if what == "open":
        read = asyncio.run(all_of(store, keys_of(store, f"{prefix}/index")))
    elif what == "one":
        read = [bytes(obstore.get(store, key).bytes()) for key in events for _ in range(TENSORS)]
    else:
        read = asyncio.run(all_of(store, events))
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "steps": len(read)}
    print_result({**taken, "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024})


main(*sys.argv[1:])

"""A fleet as a file for Kubernetes: an Indexed Job for each node pool."""

import re
from collections.abc import Sequence

import msgspec

from .. import assets
from ..planning.request import Request
from ..planning.usage import UsageError
from .plan import time_limit

LABEL = re.compile(r"[\w./-]{1,300}=[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def kubernetes(image: str, pools: Sequence[str], per_pool: int, request: Request) -> str:
    """The Jobs as JSON, which is YAML too; a pool is a label of its nodes."""
    text, jobs = assets.path("fleet/job.json").read_text(), []
    for number, pool in enumerate(pools, start=1):
        if not LABEL.fullmatch(pool):
            raise UsageError(f"--pool takes a label of nodes such as pool=a100, not {pool!r}")
        job = msgspec.json.decode(text)
        job["metadata"]["name"] = f"workbench-{number}"
        limit = round(time_limit(request.budget))
        job["spec"] |= {"completions": per_pool, "parallelism": per_pool}
        job["spec"]["activeDeadlineSeconds"] = limit
        pod = job["spec"]["template"]["spec"]
        pod["nodeSelector"] = dict([pool.split("=")])
        pod["containers"][0] |= {"image": image, "args": request.arguments("--json")}
        jobs.append(msgspec.json.format(msgspec.json.encode(job)).decode())
    return "\n---\n".join(jobs)

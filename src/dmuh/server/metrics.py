"""ServiceMetrics: requests, times, batches and images, in the text format of Prometheus."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ServiceMetrics:
    """Requests by route and status, how long they took, and how many were worked on together."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "dmuh_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "dmuh_request_seconds",
            "Time to the answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._batches = Histogram(
            "dmuh_batch_size", "Items worked on together.", ["work"], buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self._registry,
        )  # fmt: skip
        self._images = Gauge("dmuh_images", "Images in the catalogue.", registry=self._registry)

    def answered(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """Count a request; those without a route are counted together, since there is no end of such paths."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if route != "none" else "any"
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batches(self, work: str) -> Callable[[int], None]:
        """Return a function to be called with the size of each batch of this work."""
        return self._batches.labels(work).observe

    def text(self, images: int) -> bytes:
        """Return everything as Prometheus reads it."""
        self._images.set(images)
        return generate_latest(self._registry)

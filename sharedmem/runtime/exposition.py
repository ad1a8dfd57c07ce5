"""The counters, gauges and histograms of a process in the text format of Prometheus."""

from __future__ import annotations

from itertools import accumulate

from sharedmem.runtime.counters import Counters, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(counters: Counters) -> str:
    """Return the values of one hub as Prometheus reads them."""
    lines: list[str] = []
    named: set[str] = set()

    def begin(name: str, kind: str) -> None:
        lines.extend([] if name in named else [f"# TYPE {name} {kind}"])
        named.add(name)

    for count in counters.snapshot():
        begin(f"{count.name}_total", "counter")
        lines.append(f"{count.name}_total{_labels(count.labels)} {_number(count.value)}")
    for gauge in counters.gauges():
        begin(gauge.name, "gauge")
        lines.append(f"{gauge.name}{_labels(gauge.labels)} {_number(gauge.value)}")
    for found in counters.histograms():
        begin(found.name, "histogram")
        bounds = [*map(str, found.bounds), "+Inf"]
        for bound, within in zip(bounds, accumulate(found.buckets), strict=True):
            lines.append(f"{found.name}_bucket{_labels((*found.labels, ('le', bound)))} {within}")
        lines.append(f"{found.name}_sum{_labels(found.labels)} {_number(found.total)}")
        lines.append(f"{found.name}_count{_labels(found.labels)} {sum(found.buckets)}")
    return "\n".join([*lines, ""])


def _number(value: float) -> str:
    # All digits: of a rounded counter no rate can be computed.
    return str(int(value)) if value == int(value) else repr(value)


def _labels(labels: Labels) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""A trace for Perfetto, written packet by packet: tracks, slices, instants, counters, flows.

The format is perfetto.dev's protobuf trace, with packets of its `perfetto` package. Slices of one
track must nest; packets may come in any order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import IO, Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

Detail = str | int | float
Track = int
"""The uuid of a track."""

_SEQUENCE = 1  # all packets are of one writer
_KINDS = proto.TrackEvent


class PerfettoFile:
    """One trace that is being written. Times are seconds on the trace's clock, from 0 on."""

    def __init__(self, file: IO[bytes], details: Sequence[str], began: float | None) -> None:
        """`details` names everything that slices and instants may say of themselves.

        `began` is the Unix time, in seconds, of the trace's zero; None if it is not known.
        """
        self._builder = StreamingTraceProtoBuilder(file)
        self._uuids = count(1)
        self._ranks: dict[Track, count[int]] = {}
        self._details = {name: number for number, name in enumerate(details, start=1)}
        self._begin(details, began)

    def process(self, name: str) -> Track:
        """A process of its own: what holds tracks."""
        packet, uuid = self._packet(), next(self._uuids)
        descriptor = packet.track_descriptor
        descriptor.uuid = uuid
        descriptor.process.pid = uuid
        descriptor.process.process_name = name
        descriptor.child_ordering = proto.TrackDescriptor.EXPLICIT
        self._builder.write_packet(packet)
        self._ranks[uuid] = count()
        return uuid

    def track(self, process: Track, name: str, rank: int | None = None) -> Track:
        """A track of a process; by `rank`, else below those that are there."""
        packet = self._child(process, name, rank)
        self._builder.write_packet(packet)
        return int(packet.track_descriptor.uuid)

    def counter(self, process: Track, name: str, unit: str) -> Track:
        """A track of numbers over time."""
        packet = self._child(process, name, None)
        packet.track_descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        return int(packet.track_descriptor.uuid)

    def slice(
        self,
        track: Track,
        name: str,
        began: float,
        ended: float,
        details: Mapping[str, Detail],
        *,
        flows: Iterable[int] = (),
        ending_flows: Iterable[int] = (),
    ) -> None:
        """Something that took its time. `flows` lead from it, `ending_flows` to it."""
        packet = self._event(track, _KINDS.TYPE_SLICE_BEGIN, began)
        event = packet.track_event
        event.name = name
        event.flow_ids.extend(flows)
        event.terminating_flow_ids.extend(ending_flows)
        self._describe(event, details)
        self._builder.write_packet(packet)
        self._builder.write_packet(self._event(track, _KINDS.TYPE_SLICE_END, ended))

    def instant(self, track: Track, name: str, t: float, details: Mapping[str, Detail]) -> None:
        """Something that happened at one moment."""
        packet = self._event(track, _KINDS.TYPE_INSTANT, t)
        packet.track_event.name = name
        self._describe(packet.track_event, details)
        self._builder.write_packet(packet)

    def count(self, counter: Track, t: float, value: float) -> None:
        """A counter's value from `t` on."""
        packet = self._event(counter, _KINDS.TYPE_COUNTER, t)
        if isinstance(value, int):
            packet.track_event.counter_value = value
        else:
            packet.track_event.double_counter_value = value
        self._builder.write_packet(packet)

    def _begin(self, details: Sequence[str], began: float | None) -> None:
        """Names that are defined once for all packets, and the meaning of the clock."""
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        for number, name in enumerate(details, start=1):
            packet.interned_data.debug_annotation_names.add(iid=number, name=name)
        self._builder.write_packet(packet)
        if began is not None:
            packet = self._builder.create_packet()
            clocks = packet.clock_snapshot.clocks
            clocks.add(clock_id=proto.BUILTIN_CLOCK_BOOTTIME, timestamp=0)
            clocks.add(clock_id=proto.BUILTIN_CLOCK_REALTIME, timestamp=_ns(began))
            self._builder.write_packet(packet)

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _child(self, process: Track, name: str, rank: int | None) -> Any:
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid = next(self._uuids)
        descriptor.parent_uuid = process
        descriptor.name = name
        descriptor.sibling_order_rank = next(self._ranks[process]) if rank is None else rank
        return packet

    def _event(self, track: Track, kind: Any, t: float) -> Any:
        packet = self._packet()
        packet.timestamp = _ns(t)
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet

    def _describe(self, event: Any, details: Mapping[str, Detail]) -> None:
        for name, value in details.items():
            said = event.debug_annotations.add(name_iid=self._details[name])
            if isinstance(value, str):
                said.string_value = value
            elif isinstance(value, int):
                said.int_value = value
            else:
                said.double_value = value


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

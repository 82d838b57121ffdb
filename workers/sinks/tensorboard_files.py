"""TensorBoard sink: writes an event file in the attempt's folder, without TensorFlow. After a restart, the file is
truncated to the cursor's size, so that it contains no row twice."""

import json
import os
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from workers.sinks.sink import About, Row, Sink

FILE = "events.out.tfevents.run"


class TensorboardSink(Sink):
    def open(self, about: About, state: dict[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        path = about.folder / FILE
        size = int(state.get("size", 0))
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
        self._file.truncate(size)
        self._file.seek(size)
        self._records = RecordWriter(self._file)
        if not size:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            for tag, text in (("run", about.link), ("config", json.dumps(about.config, indent=1, default=str))):
                self._write(_text_event(tag, f"    {text}".replace("\n", "\n    ") if tag == "config" else text))

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for row in rows:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in row.values.items()]
            self._write(Event(wall_time=row.t, step=row.step, summary=Summary(value=values)))
        self._records.flush()
        os.fsync(self._file.fileno())
        return {"size": self._file.tell()}

    def close(self, reason: str) -> None:
        self._records.flush()
        self._records.close()

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


def _text_event(tag: str, text: str) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    value = Summary.Value(tag=f"{tag}/text_summary", metadata=plugin, tensor=tensor)
    return Event(wall_time=time.time(), summary=Summary(value=[value]))

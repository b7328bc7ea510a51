"""Reads every message of a recording with the packages `mcap` and `mcap-protobuf-support`.

Prints one JSON object: how many messages each topic has with its schema, and the fixes. Messages of Foxglove's types are
decoded with the published classes as well, which must find no field that they do not know.

Usage: read_recording.py blocks.mcap
"""

import importlib
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory


def published(name: str):
    """The class of a message of Foxglove's published schemas."""
    kind = name.removeprefix("foxglove.")
    return getattr(importlib.import_module(f"foxglove_schemas_protobuf.{kind}_pb2"), kind)


def unknown_fields(message) -> int:
    """Number of fields of a message, and of the messages in it, that its class does not know."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value if not hasattr(value, "DESCRIPTOR") else [value]
            count += sum(unknown_fields(inner) for inner in values)
    return count


def main(path: str) -> None:
    topics: dict[str, dict] = {}
    fixes = []
    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[DecoderFactory()])
        for schema, channel, message, decoded in reader.iter_decoded_messages():
            topic = topics.setdefault(channel.topic, {"schema": schema.name, "messages": 0})
            topic["messages"] += 1
            assert schema.encoding == channel.message_encoding == "protobuf", channel
            assert unknown_fields(decoded) == 0, f"{channel.topic}: the schema lacks a field"
            if schema.name.startswith("foxglove."):
                known = published(schema.name).FromString(message.data)
                assert unknown_fields(known) == 0, f"{channel.topic}: a field of another number"
                assert str(known) == str(decoded), f"{channel.topic}: a field of another name"
            if channel.topic == "/fixes":
                fixes.append(
                    {
                        "frame": decoded.frame,
                        "status": decoded.status,
                        "position_m": [decoded.position.x_m, decoded.position.y_m, decoded.position.z_m],
                        "covariance_m2": list(decoded.covariance_m2),
                        "tracks": [track.identity for track in decoded.tracks],
                    }
                )
        summary = reader.get_summary()
    for channel in summary.channels.values():
        schema = summary.schemas[channel.schema_id]
        topics.setdefault(channel.topic, {"schema": schema.name, "messages": 0})
    print(json.dumps({"topics": topics, "fixes": fixes}))


if __name__ == "__main__":
    main(sys.argv[1])

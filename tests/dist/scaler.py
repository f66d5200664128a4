# SPDX-License-Identifier: Apache-2.0

"""KEDA's side of the external scaler: the calls that its operator makes, by the messages of `proto/externalscaler`."""

from __future__ import annotations

import re
from typing import Any

import grpc
import kit
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = kit.ROOT / "proto/externalscaler/externalscaler.proto"

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {"string": Field.TYPE_STRING, "bool": Field.TYPE_BOOL, "int64": Field.TYPE_INT64, "double": Field.TYPE_DOUBLE}


def _add_field(to: descriptor_pb2.DescriptorProto, line: re.Match[str]) -> None:
    repeated, kind, name, tag = line.groups()
    field = to.field.add(name=name, number=int(tag), label=Field.LABEL_OPTIONAL)
    if kind.startswith("map<"):
        # A map is a list of messages with a key and a value.
        entry = to.nested_type.add(name="ScalerMetadataEntry")
        entry.options.map_entry = True
        for number, part in enumerate(("key", "value"), start=1):
            entry.field.add(name=part, number=number, label=Field.LABEL_OPTIONAL, type=Field.TYPE_STRING)
        kind, repeated = f"{to.name}.{entry.name}", "repeated "
    if repeated:
        field.label = Field.LABEL_REPEATED
    if kind in SCALARS:
        field.type = SCALARS[kind]
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".externalscaler.{kind}"


def _messages() -> dict[str, Any]:
    """The classes of all messages of the contract. The test environment has no compiler of protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name=PROTO.name, package="externalscaler", syntax="proto3")
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", PROTO.read_text(), re.MULTILINE | re.DOTALL):
        message = file.message_type.add(name=name)
        for line in re.finditer(r"^  (repeated )?(\w+(?:<.+>)?) (\w+) = (\d+);", body, re.MULTILINE):
            _add_field(message, line)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {message.name: pool.FindMessageTypeByName(f"externalscaler.{message.name}") for message in file.message_type}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


MESSAGES = _messages()


class Scaler:
    """A client of one gateway."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)

    def _call(self, method: str, request: Any, answer: str) -> Any:
        call = self._channel.unary_unary(
            f"/externalscaler.ExternalScaler/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES[answer].FromString,
        )
        return call(request, timeout=60)

    def value(self, **trigger: str) -> float:
        """The value that KEDA divides by the target of a trigger."""
        scaled = self._scaled(trigger)
        (spec,) = self._call("GetMetricSpec", scaled, "GetMetricSpecResponse").metricSpecs
        asked = MESSAGES["GetMetricsRequest"](scaledObjectRef=scaled, metricName=spec.metricName)
        (metric,) = self._call("GetMetrics", asked, "GetMetricsResponse").metricValues
        assert metric.metricName == spec.metricName
        return float(metric.metricValueFloat)

    def is_active(self, **trigger: str) -> bool:
        return bool(self._call("IsActive", self._scaled(trigger), "IsActiveResponse").result)

    @staticmethod
    def _scaled(trigger: dict[str, str]) -> Any:
        return MESSAGES["ScaledObjectRef"](name="engine", namespace="default", scalerMetadata=trigger)

    def close(self) -> None:
        self._channel.close()

//! Sources of events: what a peer declares and what the kernel says about it.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use tidegate_engine::{AttributeValue, Attributes, Lease, Resource, Scope, Source, SourceId};

use super::proto;
use crate::component::unix_now;
use crate::net::Credentials;

/// A new source. What the kernel says wins over what the peer says.
pub(super) fn new_source(declared: &proto::Source, peer: Option<Credentials>, timeout: Duration) -> Source {
    let resource = Resource {
        attributes: attributes(&declared.resource).merge(&of_peer(peer)),
        schema_url: Arc::default(),
    };
    Source {
        id: SourceId::next(),
        resource: Arc::new(resource),
        scope: Arc::new(declared.scope.as_ref().map(scope).unwrap_or_default()),
        attributes: attributes(&declared.attributes),
        lease: Arc::new(Lease::new(timeout, unix_now())),
    }
}

/// OpenTelemetry's names for what SO_PEERCRED and SCM_CREDENTIALS tell.
fn of_peer(peer: Option<Credentials>) -> Attributes {
    let Some(peer) = peer else {
        return Attributes::default();
    };
    let pid = peer.pid.map(|pid| ("process.pid", i64::from(pid)));
    pid.into_iter()
        .chain([("process.user.id", i64::from(peer.uid))])
        .collect()
}

fn scope(declared: &InstrumentationScope) -> Scope {
    Scope {
        name: declared.name.as_str().into(),
        version: declared.version.as_str().into(),
        attributes: attributes(&declared.attributes),
        schema_url: Arc::default(),
    }
}

/// OTLP attributes as ours.
pub(super) fn attributes(list: &[KeyValue]) -> Attributes {
    list.iter()
        .map(|entry| (entry.key.as_str(), value(entry.value.as_ref())))
        .collect()
}

/// As deep as the message: the decoder has limited that.
fn value(any: Option<&AnyValue>) -> AttributeValue {
    match any.and_then(|any| any.value.as_ref()) {
        Some(Value::StringValue(text)) => AttributeValue::from(text.as_str()),
        Some(Value::BoolValue(truth)) => AttributeValue::Bool(*truth),
        Some(Value::IntValue(number)) => AttributeValue::Int(*number),
        Some(Value::DoubleValue(number)) => AttributeValue::Double(*number),
        Some(Value::BytesValue(bytes)) => AttributeValue::Bytes(bytes.as_slice().into()),
        Some(Value::ArrayValue(array)) => {
            AttributeValue::Array(array.values.iter().map(|each| value(Some(each))).collect())
        }
        Some(Value::KvlistValue(list)) => AttributeValue::Map(attributes(&list.values)),
        // Indexes into the string table of the profiles signal mean nothing here.
        Some(Value::StringValueStrindex(_)) | None => AttributeValue::Empty,
    }
}

// SPDX-License-Identifier: Apache-2.0

//! Sources of events: the declarations of a peer, and the kernel's information about it.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use tidegate_engine::{Attributes, Lease, Resource, Scope, Source, SourceId};

use super::proto;
use crate::batch::convert::attributes_from_proto;
use crate::component::unix_now;
use crate::net::Credentials;

/// A new source. The attributes from the kernel replace those that the peer declares.
pub(super) fn new_source(declared: &proto::Source, peer: Option<Credentials>, timeout: Duration) -> Source {
    let resource = Resource {
        attributes: attributes_from_proto(&declared.resource).merge(&of_peer(peer)),
        schema_url: Arc::default(),
    };
    Source {
        id: SourceId::next(),
        resource: Arc::new(resource),
        scope: Arc::new(declared.scope.as_ref().map(scope).unwrap_or_default()),
        attributes: attributes_from_proto(&declared.attributes),
        lease: Arc::new(Lease::new(timeout, unix_now())),
    }
}

/// OpenTelemetry's names for the fields of SO_PEERCRED and SCM_CREDENTIALS.
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
        attributes: attributes_from_proto(&declared.attributes),
        schema_url: Arc::default(),
    }
}

// SPDX-License-Identifier: Apache-2.0

//! The spans of the registry that pushes: by the same way to the same collector, of the same resource.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;

use super::build::{OtelBuilder, OtelError};
use super::send::Sender;
use crate::Spans;
use crate::trace::export_runtime;

/// Sends spans where values are sent.
#[derive(Debug)]
struct Exporter {
    sender: std::sync::Arc<Sender>,
    resource: ResourceAttributesWithSchema,
    within: Duration,
    runtime: Handle,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let (sender, within) = (self.sender.clone(), self.within);
        // The thread that waits for it has no runtime.
        let sending = self
            .runtime
            .spawn(async move { sender.send_spans(request, within).await });
        let sent = sending.await.map_err(|error| error.to_string());
        sent.and_then(|sent| sent).map_err(OTelSdkError::InternalFailure)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

/// The spans of a registry that is built so.
pub(super) fn of(builder: &OtelBuilder) -> Result<Spans, OtelError> {
    let runtime = export_runtime()?;
    let sender = {
        let _inside = runtime.enter();
        Sender::new(builder, "/v1/traces")?
    };
    let exporter = Exporter {
        sender: sender.into(),
        resource: ResourceAttributesWithSchema::default(),
        within: builder.timeout,
        runtime: runtime.handle().clone(),
    };
    Ok(Spans::in_batches(&builder.resource, exporter, runtime))
}

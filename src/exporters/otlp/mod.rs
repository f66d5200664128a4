//! `otlp`: sends metrics, traces and logs by OTLP/gRPC. Payloads that nobody had to decode are sent as they came in.

mod codec;
mod config;
mod line;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;

use crate::batch::{ClientMetadata, Encoded, Signal};
use crate::component::auth::Credentials;
use crate::component::{
    ComponentError, ConfigType, Context, ExporterContext, ExporterFactory, Factory, Stability,
};
use crate::delivery::answer::{MAX_ANSWER_BYTES, USER_AGENT, of_status};
use crate::delivery::{Attempt, Destination, Outcome, Parcel};
use crate::net::client::{Connector, UseTls};
use crate::net::headers;
use crate::net::tls::ALPN_GRPC;
use codec::ExportCodec;
pub(super) use config::{Compression, Config};
use line::Line;
pub(super) use target::Target;

/// The factory of `otlp`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "otlp",
    aliases: &["otlp_grpc"],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "sends metrics, traces and logs by OTLP over gRPC",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| Ok(Arc::new(destination(&settings.get::<Config>(), cx)?)),
};

/// An exporter like those of this type, for others that send by it.
pub(super) fn destination(
    config: &Config,
    cx: ExporterContext,
) -> Result<Destination<Client>, ComponentError> {
    let client = Client::new(config, &cx.base)?;
    Ok(Destination::new(cx, &config.delivery(), client))
}

/// The method of each signal, by `Signal as usize`.
const METHODS: [&str; 3] = [
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
];

pub(super) struct Client {
    line: Line,
    headers: HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
    timeout: Duration,
}

impl Client {
    fn new(config: &Config, cx: &Context) -> Result<Self, ComponentError> {
        let wrong = |error: &dyn std::fmt::Display| cx.error(format!("endpoint: {error}"));
        let secure = config.is_secure();
        let use_tls = if secure { UseTls::Always } else { UseTls::Never };
        let unix = config.endpoint.unix_path();
        let connector = Connector::new(unix, use_tls, &config.tls, ALPN_GRPC);
        let connector = connector.map_err(|error| cx.error(error.to_string()))?;
        let authority = config.endpoint.authority();
        let scheme = if secure { "https" } else { "http" };
        let origin = format!("{scheme}://{authority}")
            .parse()
            .map_err(|error| wrong(&error))?;
        // tonic refuses `https` unless it does the TLS itself; ours is done by the connector.
        let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|error| wrong(&error))?;
        let endpoint = endpoint
            .origin(origin)
            .user_agent(USER_AGENT)
            .map_err(|error| wrong(&error))?;
        let compression = config.compression();
        let dial = move || {
            let channel = endpoint.connect_with_connector_lazy(connector.clone());
            let grpc = compression.apply(Grpc::new(channel));
            grpc.max_decoding_message_size(MAX_ANSWER_BYTES)
        };
        let credentials = config
            .auth
            .as_ref()
            .map(|auth| auth.credentials(cx))
            .transpose()?;
        if credentials
            .as_ref()
            .is_some_and(|credentials| credentials.signs_requests())
        {
            return Err(cx.error("auth: signed requests are for the `otlphttp` exporter"));
        }
        Ok(Self {
            line: Line::new(Box::new(dial)),
            headers: headers::build(&config.chosen().headers(&config.headers)),
            credentials,
            timeout: config.timeout,
        })
    }

    /// An error says why we can't prove now who we are.
    fn request(
        &self,
        encoded: Encoded,
        client: Option<&ClientMetadata>,
    ) -> Result<tonic::Request<Vec<Bytes>>, String> {
        let parts = encoded.parts.into_iter().map(|part| part.bytes).collect();
        let mut request = tonic::Request::new(parts);
        let mut headers = self.headers.clone();
        if let Some(credentials) = &self.credentials {
            credentials.apply(&mut headers, client)?;
        }
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        if !self.timeout.is_zero() {
            request.set_timeout(self.timeout);
        }
        Ok(request)
    }
}

#[async_trait]
impl Attempt for Client {
    async fn send(&self, parcel: Parcel) -> Outcome {
        let method = PathAndQuery::from_static(METHODS[parcel.signal() as usize]);
        let request = match self.request(parcel.encoded(), parcel.client()) {
            Ok(request) => request,
            Err(why) => return Outcome::retry(why),
        };
        let (mut grpc, call) = self.line.call();
        if let Err(error) = grpc.ready().await {
            return Outcome::retry(error_chain(&error));
        }
        match grpc.unary(request, method, ExportCodec).await {
            Ok(response) => {
                call.answered();
                response.into_inner().outcome()
            }
            Err(status) => {
                // Our own time limit is no answer.
                if !matches!(
                    status.code(),
                    tonic::Code::Cancelled | tonic::Code::DeadlineExceeded
                ) {
                    call.answered();
                }
                of_status(&status)
            }
        }
    }
}

/// An error with its causes: tonic's own text is only "transport error".
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

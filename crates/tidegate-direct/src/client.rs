// SPDX-License-Identifier: Apache-2.0

//! Calls to one replica.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::config::{DirectConfig, DirectError};
use crate::limits::{MAX_CALL_MESSAGES, MAX_HEAD_BYTES};
use crate::wire::{
    DecideOutcome, DecideRequest, ListRequest, MessageCopy, MessageHead, PublishOutcome, StatusRequest,
    StatusResponse,
};

/// The interval of pings, and the time to wait for their answers.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A connection to a replica. It opens again by itself.
#[derive(Clone, Debug)]
pub(crate) struct PeerClient {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    cluster: String,
    max_message_bytes: usize,
    timeout: Duration,
}

/// The value of the header with a token.
pub(crate) fn bearer(config: &DirectConfig) -> Result<Option<MetadataValue<Ascii>>, DirectError> {
    let Some(token) = &config.token else {
        return Ok(None);
    };
    let value = format!("Bearer {}", token.expose()).parse();
    let mut value: MetadataValue<Ascii> = value.map_err(|_| DirectError::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The host of an address with a port.
pub(crate) fn host(address: &str) -> Result<&str, DirectError> {
    let wrong = || DirectError::Address(address.to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    port.parse::<u16>().map_err(|_| wrong())?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Some(inner.unwrap_or(host))
        .filter(|host| !host.is_empty())
        .ok_or_else(wrong)
}

impl PeerClient {
    /// A client of the replica at `address`, whose certificate has the name `name`. It connects with its first call.
    pub(crate) fn new(
        address: &str,
        name: &str,
        config: &DirectConfig,
        cluster: &str,
    ) -> Result<Self, DirectError> {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
        let mut endpoint = endpoint.map_err(|_| DirectError::Address(address.to_owned()))?;
        if let Some(tls) = &config.tls {
            endpoint = endpoint.tls_config(tls.load(name)?).map_err(DirectError::Tls)?;
        }
        let channel = endpoint
            .connect_timeout(config.timeout)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(MAX_HEAD_BYTES as u32)
            .connect_lazy();
        Ok(Self {
            channel,
            token: bearer(config)?,
            cluster: cluster.to_owned(),
            max_message_bytes: config.max_body_bytes + MAX_HEAD_BYTES,
            timeout: config.timeout,
        })
    }

    pub(crate) async fn status(&self) -> Result<StatusResponse, Status> {
        let cluster = self.cluster.clone();
        let answers = self.call("Status", vec![StatusRequest { cluster }]);
        one(answers.await?)
    }

    pub(crate) async fn publish(&self, copies: Vec<MessageCopy>) -> Result<Vec<PublishOutcome>, Status> {
        let sent = copies.len();
        let outcomes: Vec<PublishOutcome> = self.call("Publish", copies).await?;
        if outcomes.len() == sent {
            Ok(outcomes)
        } else {
            Err(Status::internal("the replica did not answer for each message"))
        }
    }

    pub(crate) async fn decide(&self, request: DecideRequest) -> Result<DecideOutcome, Status> {
        one(self.call("Decide", vec![request]).await?)
    }

    pub(crate) async fn remove(&self, heads: Vec<MessageHead>) -> Result<(), Status> {
        let _: Vec<MessageHead> = self.call("Remove", heads).await?;
        Ok(())
    }

    pub(crate) async fn list(&self, after: u64) -> Result<Vec<MessageHead>, Status> {
        self.call("List", vec![ListRequest { after }]).await
    }

    pub(crate) async fn fetch(&self, heads: Vec<MessageHead>) -> Result<Vec<MessageCopy>, Status> {
        self.call("Fetch", heads).await
    }

    async fn call<I, O>(&self, method: &str, messages: Vec<I>) -> Result<Vec<O>, Status>
    where
        I: Message + Default + 'static,
        O: Message + Default + 'static,
    {
        let answers = tokio::time::timeout(self.timeout, self.stream(method, messages));
        answers
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("the replica does not answer in time")))
    }

    async fn stream<I, O>(&self, method: &str, messages: Vec<I>) -> Result<Vec<O>, Status>
    where
        I: Message + Default + 'static,
        O: Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/tidegate.v1.Replica/{method}"));
        let path = path.map_err(|error| Status::internal(error.to_string()))?;
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(self.max_message_bytes);
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(text_of(&error)))?;
        let mut request = Request::new(tokio_stream::iter(messages));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        let codec = ProstCodec::<I, O>::default();
        let mut stream = grpc.streaming(request, path, codec).await?.into_inner();
        let mut answers = Vec::new();
        while let Some(answer) = stream.message().await? {
            if answers.len() == MAX_CALL_MESSAGES {
                return Err(Status::internal("the replica answers with too many messages"));
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}

fn one<T>(answers: Vec<T>) -> Result<T, Status> {
    let first = answers.into_iter().next();
    first.ok_or_else(|| Status::internal("the replica gives no answer"))
}

/// The error with its causes: tonic's own text is only "transport error".
fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

// SPDX-License-Identifier: Apache-2.0

//! Senders are authenticated before their body is read.

use std::net::IpAddr;

use super::*;
use crate::component::account::SenderKey;
use crate::component::auth::{Authenticator, Unauthenticated};
use crate::component::services::Services;

/// Admits requests with the header `pass`.
struct Doorman;

#[async_trait]
impl Authenticator for Doorman {
    async fn check(&self, headers: &HeaderMap, _: Option<IpAddr>) -> Result<(), Unauthenticated> {
        let shown = headers.contains_key("pass");
        shown.then_some(()).ok_or(Unauthenticated::Wrong("no pass"))
    }

    fn identity(&self, headers: &HeaderMap) -> Option<SenderKey> {
        headers.get(http::header::AUTHORIZATION).map(SenderKey::of)
    }

    fn challenge(&self) -> http::HeaderValue {
        http::HeaderValue::from_static("Pass")
    }
}

const GUARDED: &str = "protocols: {grpc: {endpoint: '127.0.0.1:0', auth: {authenticator: doorman}}, \
                       http: {endpoint: '127.0.0.1:0', auth: {authenticator: doorman}}}";

async fn guarded() -> (Arc<Sink>, Otlp) {
    let sink = Sink::new();
    let entries = Signal::ALL.map(|signal| Some(sink.entry(signal)));
    let otlp = otlp(GUARDED, entries);
    let services = Services {
        authenticator: Some(Arc::new(Doorman)),
        ..Services::default()
    };
    otlp.base.shared.services.add("doorman".to_owned(), services);
    otlp.start().await.unwrap();
    (sink, otlp)
}

#[tokio::test]
async fn unknown_senders_are_refused_in_each_protocols_way() {
    let (sink, otlp) = guarded().await;
    let body = || Bytes::from(metrics(1).encode_to_vec());
    let reply = post(&otlp.endpoint(1), "/v1/metrics", &[PROTOBUF], body()).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert_eq!(reply.headers["www-authenticate"], "Pass");
    assert_eq!(reply.rpc_status().code, Code::Unauthenticated as i32);
    let with_pass = [PROTOBUF, ("pass", "1")];
    let reply = post(&otlp.endpoint(1), "/v1/metrics", &with_pass, body()).await;
    assert_eq!(reply.status, StatusCode::OK);

    let mut client = MetricsServiceClient::new(channel(&otlp.endpoint(0)).await);
    let refused = client.export(metrics(1)).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Unauthenticated, "no pass")
    );
    let mut request = tonic::Request::new(metrics(1));
    request.metadata_mut().insert("pass", "1".parse().unwrap());
    client.export(request).await.unwrap();
    assert_eq!(sink.items(), 2);
}

#[tokio::test]
async fn a_body_of_an_unknown_sender_is_not_waited_for() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (_, otlp) = guarded().await;
    let mut stream = TcpStream::connect(otlp.endpoint(1).to_string()).await.unwrap();
    let head = "POST /v1/metrics HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

#[test]
fn a_missing_authenticator_fails_the_build_of_the_receiver() {
    let cx = ReceiverContext {
        base: context("receivers", "otlp"),
        entries: [const { None }; 3],
    };
    let error = (FACTORY.build)(&settings::<OtlpReceiverConfig>(GUARDED), cx)
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("`doorman` is not among `service::extensions`"),
        "{error}"
    );
}

// SPDX-License-Identifier: Apache-2.0

//! The requests that the receiver refuses, and the answers of each protocol.

use super::*;

#[tokio::test]
async fn undecodable_data_is_400_or_invalid_argument_with_a_bad_request() {
    let gateway = Gateway::start(BOTH).await;
    let reply = gateway.post("/v1/metrics", &[PROTOBUF], &b"\x0a\xff"[..]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let status = reply.rpc_status();
    assert_eq!(status.code, Code::InvalidArgument as i32);
    assert_eq!(
        status.details[0].type_url,
        "type.googleapis.com/google.rpc.BadRequest"
    );

    let mut client = tonic::client::Grpc::new(gateway.channel().await);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    );
    // A string where a message belongs: field 1, three bytes that are not a message.
    let noise = Noise { inner: vec![0xff; 3] };
    let codec = tonic_prost::ProstCodec::<Noise, ExportMetricsServiceResponse>::default();
    let error = client
        .unary(tonic::Request::new(noise), path, codec)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(
        error
            .get_error_details()
            .bad_request()
            .unwrap()
            .field_violations
            .len(),
        1
    );
    assert_eq!(gateway.counts.failed.load(SeqCst), 2);
}

/// Looks like a request from outside.
#[derive(Clone, PartialEq, Message)]
struct Noise {
    #[prost(bytes = "vec", tag = "1")]
    inner: Vec<u8>,
}

#[tokio::test]
async fn oversize_is_413_or_resource_exhausted_before_and_after_decompression() {
    let yaml = "protocols: {grpc: {endpoint: '127.0.0.1:0', max_recv_msg_size_mib: 1}, \
                http: {endpoint: '127.0.0.1:0', max_request_body_size: 1MiB}}";
    let gateway = Gateway::start(yaml).await;
    let large = metrics(60_000);
    assert!(large.encoded_len() > 1 << 20);
    let packed = gzip(&large.encode_to_vec());
    assert!(packed.len() < 1 << 20, "a small body that unpacks to a large one");

    let plain = MetricsServiceClient::new(gateway.channel().await);
    for mut client in [plain.clone(), plain.send_compressed(CompressionEncoding::Gzip)] {
        let error = client.export(large.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert!(
            error.get_error_details().retry_info().is_none(),
            "not worth a retry"
        );
    }
    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF, ("content-encoding", "gzip")], packed)
        .await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.rpc_status().code, Code::ResourceExhausted as i32);
    assert!(gateway.sink.batches().is_empty());
    assert_eq!(gateway.otlp.base.shared.memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_body_whose_length_is_too_large_is_413_without_being_read() {
    let gateway =
        Gateway::start("protocols: {http: {endpoint: '127.0.0.1:0', max_request_body_size: 100}}").await;
    let Endpoint::Tcp { host, port } = gateway.endpoint(0) else {
        panic!("not TCP");
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect((host, port)).await.unwrap();
    let head = "POST /v1/metrics HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 101\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_bomb_is_stopped_at_the_limit() {
    let gateway =
        Gateway::start("protocols: {http: {endpoint: '127.0.0.1:0', max_request_body_size: 1MiB}}").await;
    let zeros = vec![0; 64 << 20];
    let bombs = [
        ("gzip", gzip(&zeros)),
        ("zstd", zstd::stream::encode_all(&*zeros, 0).unwrap()),
        ("lz4", net::compress(net::Coding::Lz4, &zeros).unwrap()),
    ];
    for (coding, bomb) in bombs {
        assert!(bomb.len() < 500_000);
        let endpoint = gateway.endpoint(0);
        let reply = post(
            &endpoint,
            "/v1/logs",
            &[PROTOBUF, ("content-encoding", coding)],
            bomb.into(),
        )
        .await;
        assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE, "{coding}");
    }
}

#[tokio::test]
async fn a_refusal_by_a_busy_pipeline_has_a_delay() {
    let gateway = Gateway::start(BOTH).await;
    gateway.sink.refuse(3);
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    let error = client.export(metrics(1)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let retry = error.get_error_details().retry_info().unwrap().retry_delay;
    assert_eq!(retry, Some(Duration::from_millis(1)));

    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF], metrics(1).encode_to_vec())
        .await;
    assert_eq!(
        (reply.status, &reply.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    let status = reply.rpc_status();
    assert_eq!(status.code, Code::Unavailable as i32);
    assert_eq!(
        status.details[0].type_url,
        "type.googleapis.com/google.rpc.RetryInfo"
    );

    let body = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}]}]}]}).to_string();
    let reply = gateway.post("/v1/logs", &[JSON], body).await;
    assert_eq!(reply.json()["details"][0]["retryDelay"], "0.001000000s");
    assert_eq!(gateway.counts.refused.load(SeqCst), 3);

    client.export(metrics(1)).await.unwrap();
    assert_eq!(gateway.sink.items(), 1);
}

#[tokio::test]
async fn over_the_memory_limit_requests_are_refused_before_they_are_read() {
    let gateway = Gateway::start(BOTH).await;
    let memory = &gateway.otlp.base.shared.memory;
    memory.add_limit(crate::component::Limit::of(1 << 20));
    memory.note(2 << 20);
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    let error = client.export(metrics(1)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.get_error_details().retry_info().is_some());
    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF], metrics(1).encode_to_vec())
        .await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.headers.contains_key("retry-after"));
    memory.remove_limit(crate::component::Limit::of(1 << 20));
    client.export(metrics(1)).await.unwrap();
}

/// Takes a batch but rejects one item of it, or refuses permanently.
struct Picky {
    takes: bool,
}

impl Consumer for Picky {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        if self.takes {
            Ok(())
        } else {
            Err(Refused::permanent("never"))
        }
    }

    fn consume(&self, _: Batch, flow: &mut Flow) {
        flow.reject(1, || "a name is empty".to_owned());
    }
}

async fn picky(takes: bool) -> Otlp {
    let entry = |signal| Some(Entry::new(signal, Arc::new(Picky { takes }), Arc::default()));
    let otlp = otlp(BOTH, [entry(Signal::Metrics), entry(Signal::Traces), None]);
    otlp.start().await.unwrap();
    otlp
}

#[tokio::test]
async fn rejected_points_are_a_partial_success() {
    let otlp = picky(true).await;
    let (grpc, http) = (otlp.endpoint(0), otlp.endpoint(1));
    let mut client = MetricsServiceClient::new(channel(&grpc).await);
    let partial = client
        .export(metrics(3))
        .await
        .unwrap()
        .into_inner()
        .partial_success
        .unwrap();
    assert_eq!(
        (partial.rejected_data_points, partial.error_message.as_str()),
        (1, "a name is empty")
    );

    let reply = post(
        &http,
        "/v1/metrics",
        &[PROTOBUF],
        metrics(3).encode_to_vec().into(),
    )
    .await;
    assert_eq!(reply.status, StatusCode::OK);
    let answer = ExportMetricsServiceResponse::decode(&*reply.body).unwrap();
    assert_eq!(answer.partial_success, Some(partial));

    let span = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "s"}]}]}]}).to_string();
    let reply = post(&http, "/v1/traces", &[JSON], span.into()).await;
    let expected = json!({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "a name is empty"}});
    assert_eq!(reply.json(), expected);
}

#[tokio::test]
async fn a_refusal_for_good_is_not_retryable() {
    let otlp = picky(false).await;
    let (grpc, http) = (otlp.endpoint(0), otlp.endpoint(1));
    let mut client = MetricsServiceClient::new(channel(&grpc).await);
    assert_eq!(
        client.export(metrics(1)).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let reply = post(
        &http,
        "/v1/metrics",
        &[PROTOBUF],
        metrics(1).encode_to_vec().into(),
    )
    .await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_signal_that_no_pipeline_wants_is_unimplemented_or_404() {
    let otlp = picky(true).await;
    let (grpc, http) = (otlp.endpoint(0), otlp.endpoint(1));
    let mut client = LogsServiceClient::new(channel(&grpc).await);
    assert_eq!(
        client.export(logs()).await.unwrap_err().code(),
        Code::Unimplemented
    );
    let reply = post(&http, "/v1/logs", &[PROTOBUF], logs().encode_to_vec().into()).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn wrong_methods_paths_types_and_codings_have_their_own_status() {
    let gateway = Gateway::start(BOTH).await;
    let body = || Bytes::from(metrics(1).encode_to_vec());
    type Row = (&'static str, &'static [(&'static str, &'static str)], StatusCode);
    let table: &[Row] = &[
        ("/v1/profiles", &[PROTOBUF], StatusCode::NOT_FOUND),
        ("/v1/metrics", &[], StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (
            "/v1/metrics",
            &[("content-type", "text/plain")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            "/v1/metrics",
            &[PROTOBUF, ("content-encoding", "br")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            "/v1/metrics",
            &[PROTOBUF, ("content-encoding", "gzip")],
            StatusCode::BAD_REQUEST,
        ),
    ];
    for (path, headers, expected) in table {
        let reply = gateway.post(path, headers, body()).await;
        assert_eq!(reply.status, *expected, "{path} {headers:?}");
        assert!(!reply.rpc_status().message.is_empty());
    }
    let get = Request::get("/v1/metrics")
        .header("host", "x")
        .body(Full::default())
        .unwrap();
    let reply = send(&gateway.endpoint(1), get).await;
    assert_eq!(
        (reply.status, &reply.headers["allow"]),
        (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap())
    );
}

#[tokio::test]
async fn grpc_says_unimplemented_for_unknown_calls() {
    let gateway = Gateway::start(BOTH).await;
    let mut channel = tonic::client::Grpc::new(gateway.channel().await);
    channel.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/no.such.Service/Call");
    let codec = tonic_prost::ProstCodec::<Noise, Noise>::default();
    let error = channel
        .unary(tonic::Request::new(Noise::default()), path, codec)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
}

#[tokio::test]
async fn only_the_configured_codings_are_accepted() {
    let http = "http: {endpoint: '127.0.0.1:0', compression_algorithms: [gzip, deflate]}";
    let gateway = Gateway::start(&format!(
        "protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, {http}}}"
    ))
    .await;
    let body = request(vec![], "", [gauge("m", [int(1)])]).encode_to_vec();
    let packed = |coding| net::compress(coding, &body).unwrap();
    for (coding, body, expected) in [
        ("gzip", packed(net::Coding::Gzip), 200),
        ("zstd", packed(net::Coding::Zstd), 415),
        ("", body.clone(), 415),
    ] {
        let content_type = ("content-type", "application/x-protobuf");
        let headers = [content_type, ("content-encoding", coding)];
        let headers = &headers[..if coding.is_empty() { 1 } else { 2 }];
        let reply = gateway.post("/v1/metrics", headers, body).await;
        assert_eq!(reply.status.as_u16(), expected, "{coding:?}");
    }
}

#[tokio::test]
async fn a_request_that_takes_longer_than_read_timeout_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let http = "http: {endpoint: '127.0.0.1:0', read_timeout: 200ms}";
    let gateway = Gateway::start(&format!(
        "protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, {http}}}"
    ))
    .await;
    let mut stream = TcpStream::connect(gateway.endpoint(1).to_string()).await.unwrap();
    let head = "POST /v1/metrics HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\n\
                content-length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1024];
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut answer));
    let read = read.await.expect("it does not wait for the body").unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    // Not 408: clients of OTLP don't come back after that.
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert_eq!(gateway.counts.failed.load(SeqCst), 0);
}

/// A request of JSON whose text becomes four times as many bytes.
fn bounds(count: usize) -> String {
    let bounds = vec!["1"; count].join(",");
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"m","histogram":{{"dataPoints":[{{"timeUnixNano":"7","explicitBounds":[{bounds}]}}]}}}}]}}]}}]}}"#
    )
}

#[tokio::test]
async fn json_that_becomes_more_than_there_is_room_for_is_refused_in_time() {
    let gateway = Gateway::start(&format!("{BOTH}\nmax_elements_per_item: 1000000")).await;
    let memory = gateway.otlp.base.shared.memory.clone();
    let json = [("content-type", "application/json")];
    memory.add_limit(crate::component::Limit::of(4 << 20));
    let never = gateway.post("/v1/metrics", &json, bounds(400_000)).await;
    assert_eq!(never.status, StatusCode::PAYLOAD_TOO_LARGE);
    let others = 3 << 20;
    memory.hold(others);
    let busy = gateway.post("/v1/metrics", &json, bounds(80_000)).await;
    assert_eq!(busy.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(busy.headers["retry-after"], "1");
    memory.release(others);
    // Both are counted as what they are, and not as malformed.
    assert_eq!((gateway.counts.failed.load(SeqCst), gateway.sink.items()), (0, 0));
    let taken = gateway.post("/v1/metrics", &json, bounds(80_000)).await;
    assert_eq!((taken.status, gateway.sink.items()), (StatusCode::OK, 1));
    assert_eq!(memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_short_request_in_pieces_is_decoded_where_it_has_room() {
    let gateway = Gateway::start(BOTH).await;
    let memory = gateway.otlp.base.shared.memory.clone();
    // Its resource comes twice.
    let whole = metrics(3).encode_to_vec();
    let (twice, inner) = ([0x0a, 0x00, 0x0a, 0x00], &whole[2..]);
    assert_eq!(usize::from(whole[1]), inner.len());
    let length = u8::try_from(inner.len() + twice.len()).unwrap();
    assert!(length < 0x80);
    let pieces = [&[0x0a, length], inner, &twice].concat();
    let taken = gateway.post("/v1/metrics", &[PROTOBUF], pieces.clone()).await;
    assert_eq!((taken.status, gateway.sink.items()), (StatusCode::OK, 3));
    memory.add_limit(crate::component::Limit::of(2_000));
    let refused = gateway.post("/v1/metrics", &[PROTOBUF], pieces).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(gateway.counts.failed.load(SeqCst), 0);
}

/// Items that a retry brings again count as lost only once.
#[tokio::test]
async fn what_is_cut_out_of_a_request_counts_when_the_rest_is_taken() {
    let gateway = Gateway::start(&format!("{BOTH}\nmax_elements_per_item: 10")).await;
    let mut request = metrics(1);
    let many = (0..20).map(|number| tidegate_requests::attribute(&format!("key{number}"), "value"));
    let point = NumberDataPoint {
        time_unix_nano: 1,
        attributes: many.collect(),
        ..int(43)
    };
    let metric = &mut request.resource_metrics[0].scope_metrics[0].metrics;
    metric.push(gauge("heavy", [point]));
    let body = request.encode_to_vec();
    gateway.sink.refuse(2);
    for _ in 0..2 {
        let refused = gateway.post("/v1/metrics", &[PROTOBUF], body.clone()).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(gateway.counts.failed.load(SeqCst), 0);
    }
    let taken = gateway.post("/v1/metrics", &[PROTOBUF], body).await;
    assert_eq!((taken.status, gateway.sink.items()), (StatusCode::OK, 1));
    assert_eq!(gateway.counts.failed.load(SeqCst), 1);
}

// SPDX-License-Identifier: Apache-2.0

//! The requests that the receiver accepts: every signal, protocol, coding and transport.

use super::*;

#[tokio::test]
async fn grpc_takes_every_signal_in_every_compression_byte_for_byte() {
    for compression in [
        None,
        Some(CompressionEncoding::Gzip),
        Some(CompressionEncoding::Zstd),
    ] {
        let gateway = Gateway::start(BOTH).await;
        export_all_three(gateway.channel().await, compression).await;
        assert_eq!(arrived(&gateway.sink), all_three(), "{compression:?}");
        assert_eq!(gateway.sink.items(), 1 + 2 + 3);
        assert_eq!(gateway.counts.accepted.load(SeqCst), 6);
        assert_eq!(
            gateway.otlp.base.shared.memory.reserved_bytes(),
            0,
            "let go again"
        );
    }
}

#[tokio::test]
async fn a_message_larger_than_a_frame_and_a_window_arrives_whole() {
    let gateway = Gateway::start(BOTH).await;
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    client.export(metrics(400_000)).await.unwrap();
    let (_, bytes) = &arrived(&gateway.sink)[0];
    assert!(bytes.len() > net::http::HTTP2_STREAM_WINDOW_BYTES as usize);
    assert_eq!(gateway.sink.items(), 400_000);
}

#[tokio::test]
async fn http_takes_every_signal_in_every_coding_byte_for_byte() {
    type Pack = fn(&[u8]) -> Vec<u8>;
    let zlib: Pack = |data| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    };
    let lz4: Pack = |data| net::compress(net::Coding::Lz4, data).unwrap();
    let codings: [(&str, Pack); 5] = [
        ("identity", |data| data.to_vec()),
        ("gzip", gzip),
        ("deflate", zlib),
        ("zstd", |data| zstd::stream::encode_all(data, 0).unwrap()),
        ("lz4", lz4),
    ];
    for (coding, pack) in codings {
        let gateway = Gateway::start(BOTH).await;
        for (signal, body) in all_three() {
            let path = format!("/v1/{signal}");
            let reply = gateway
                .post(&path, &[PROTOBUF, ("content-encoding", coding)], pack(&body))
                .await;
            assert_eq!((reply.status, reply.body.len()), (StatusCode::OK, 0), "{coding}");
            assert_eq!(reply.headers["content-type"], "application/x-protobuf");
        }
        assert_eq!(arrived(&gateway.sink), all_three(), "{coding}");
    }
}

#[tokio::test]
async fn unix_sockets_take_every_signal_over_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let yaml = format!(
        "protocols: {{grpc: {{endpoint: '{}', transport: unix}}, http: {{endpoint: 'unix:{}'}}}}",
        at("grpc.sock"),
        at("http.sock"),
    );
    let gateway = Gateway::start(&yaml).await;
    export_all_three(gateway.channel().await, None).await;
    for (signal, body) in all_three() {
        let reply = gateway.post(&format!("/v1/{signal}"), &[PROTOBUF], body).await;
        assert_eq!(reply.status, StatusCode::OK);
    }
    assert_eq!(arrived(&gateway.sink), [all_three(), all_three()].concat());
    gateway.otlp.stop(Instant::now() + Duration::from_secs(10)).await;
    assert!(!Path::new(&at("grpc.sock")).exists());
}

#[tokio::test]
async fn json_becomes_protobuf_and_the_answer_is_json() {
    let gateway = Gateway::start(BOTH).await;
    let body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "m", "gauge": {"dataPoints": [{"timeUnixNano": "1", "asInt": "42"}]}}
    ]}]}]});
    let content_type = ("content-type", "Application/JSON; charset=utf-8");
    let reply = gateway
        .post("/v1/metrics", &[content_type], body.to_string())
        .await;
    assert_eq!((reply.status, reply.json()), (StatusCode::OK, json!({})));
    let (_, bytes) = &arrived(&gateway.sink)[0];
    assert_eq!(ExportMetricsServiceRequest::decode(&**bytes).unwrap(), metrics(1));

    let reply = gateway
        .post("/v1/metrics", &[JSON], "{\"resourceMetrics\": 7}")
        .await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let status = reply.json();
    assert_eq!(status["code"], Code::InvalidArgument as i32);
    assert_eq!(
        status["details"][0]["@type"],
        "type.googleapis.com/google.rpc.BadRequest"
    );
    let field = &status["details"][0]["fieldViolations"][0]["field"];
    assert_eq!(field, "resourceMetrics", "where in the request it is");
    assert_eq!(gateway.counts.failed.load(SeqCst), 1);
}

#[tokio::test]
async fn an_empty_request_succeeds_and_goes_nowhere() {
    let gateway = Gateway::start(BOTH).await;
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    client
        .export(ExportMetricsServiceRequest::default())
        .await
        .unwrap();
    assert_eq!(
        gateway.post("/v1/logs", &[PROTOBUF], Bytes::new()).await.status,
        StatusCode::OK
    );
    assert_eq!(
        gateway.post("/v1/traces", &[JSON], "{}").await.status,
        StatusCode::OK
    );
    assert!(gateway.sink.batches().is_empty());
}

#[tokio::test]
async fn tls_on_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert_file, key_file) = (
        write("cert.pem", key.cert.pem()),
        write("key.pem", key.signing_key.serialize_pem()),
    );
    let tls = format!("endpoint: '127.0.0.1:0', tls: {{cert_file: {cert_file}, key_file: {key_file}}}");
    let gateway = Gateway::start(&format!("protocols: {{grpc: {{{tls}}}, http: {{{tls}}}}}")).await;

    let trust = tonic::transport::ClientTlsConfig::new()
        .ca_certificate(tonic::transport::Certificate::from_pem(key.cert.pem()))
        .domain_name("localhost");
    let channel = Channel::from_shared(format!("https://{}", gateway.endpoint(0))).unwrap();
    let channel = channel.tls_config(trust).unwrap().connect().await.unwrap();
    export_all_three(channel, None).await;

    let client = net::TlsClientConfig {
        ca_file: Some(cert_file.into()),
        ..net::TlsClientConfig::default()
    };
    let connector =
        tokio_rustls::TlsConnector::from(client.build(&[b"http/1.1"]).unwrap().current().unwrap());
    let Endpoint::Tcp { host, port } = gateway.endpoint(1) else {
        panic!("not TCP");
    };
    let stream = TcpStream::connect((host, port)).await.unwrap();
    let stream = connector
        .connect("localhost".try_into().unwrap(), stream)
        .await
        .unwrap();
    let request = Request::post("/v1/metrics")
        .header("host", "localhost")
        .header(PROTOBUF.0, PROTOBUF.1);
    let reply = exchange(
        stream,
        request
            .body(Full::new(metrics(1).encode_to_vec().into()))
            .unwrap(),
    )
    .await;
    assert_eq!(reply.status, StatusCode::OK);
}

#[test]
fn configuration_mistakes_are_reported() {
    let table = [
        (
            "",
            "must specify at least one protocol when using the OTLP receiver",
        ),
        (
            "protocols: {}",
            "must specify at least one protocol when using the OTLP receiver",
        ),
        ("protocols: {grpc: {endpoint: localhost}}", "missing port"),
        ("protocols: {grpc: {transport: unix}}", "is not of this transport"),
        (
            "protocols: {grpc: {tls: {cert_file: a}}}",
            "must include both certificate and key",
        ),
        (
            "protocols: {http: {logs_url_path: /v1/metrics}}",
            "another signal has the same path",
        ),
        ("protocols: {htp: {}}", "did you mean `http`?"),
    ];
    for (yaml, expected) in table {
        let mut problems = crate::config::Problems::default();
        let text = if yaml.is_empty() { "{}" } else { yaml };
        let node = crate::config::parse_text("otlp.yaml", text, &mut problems).unwrap();
        (FACTORY.config.decode)(&node, &mut problems);
        assert!(problems.to_string().contains(expected), "{yaml}: {problems}");
    }
}

#[test]
fn null_protocols_mean_the_standard_ports_and_paths() {
    let config = settings::<OtlpReceiverConfig>("protocols: {grpc: , http: }").get::<OtlpReceiverConfig>();
    assert_eq!(config.protocols.grpc, Some(GrpcConfig::default()));
    assert_eq!(
        config.protocols.http.as_ref().unwrap().endpoint.to_string(),
        "localhost:4318"
    );
}

const FOR_PAGES: &str = "protocols: {grpc: {endpoint: '127.0.0.1:0'}, http: {endpoint: '127.0.0.1:0', \
    response_headers: {x-served-by: tide}, \
    cors: {allowed_origins: ['https://*.example.com'], allowed_headers: [x-tenant], \
    exposed_headers: [x-served-by], max_age: 600}}}";

#[tokio::test]
async fn only_pages_of_allowed_origins_get_cors_headers() {
    let gateway = Gateway::start(FOR_PAGES).await;
    let preflight = |origin: &str| {
        Request::options("/v1/metrics")
            .header("host", "localhost")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "x-tenant,content-type")
            .body(Full::default())
            .unwrap()
    };
    let reply = send(&gateway.endpoint(1), preflight("https://app.example.com")).await;
    assert_eq!(reply.status, StatusCode::OK);
    let headers = &reply.headers;
    assert_eq!(headers["access-control-allow-origin"], "https://app.example.com");
    assert_eq!(headers["access-control-max-age"], "600");
    let allowed = headers["access-control-allow-headers"].to_str().unwrap();
    assert!(
        allowed.contains("x-tenant") && allowed.contains("content-type"),
        "{allowed}"
    );
    let reply = send(&gateway.endpoint(1), preflight("https://evil.example")).await;
    assert!(!reply.headers.contains_key("access-control-allow-origin"));

    let sent = [PROTOBUF, ("origin", "https://app.example.com")];
    let reply = gateway
        .post("/v1/metrics", &sent, metrics(1).encode_to_vec())
        .await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(
        reply.headers["access-control-allow-origin"],
        "https://app.example.com"
    );
    assert_eq!(reply.headers["x-served-by"], "tide");
    assert_eq!(reply.headers["access-control-expose-headers"], "x-served-by");
    // A refusal is one that a page can read, too.
    let reply = gateway.post("/v1/metrics", &sent, &b"\xff"[..]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        reply.headers["access-control-allow-origin"],
        "https://app.example.com"
    );
}

#[tokio::test]
async fn answers_worth_it_are_compressed_where_that_is_accepted() {
    let gateway = Gateway::start(BOTH).await;
    let accepts = [JSON, ("accept-encoding", "gzip")];
    let reply = gateway.post("/v1/metrics", &accepts, &b"[]"[..]).await;
    assert_eq!(reply.headers["content-encoding"], "gzip");
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&*reply.body);
    std::io::Read::read_to_string(&mut decoder, &mut text).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["code"], 3);
    let reply = gateway.post("/v1/metrics", &[JSON], &b"[]"[..]).await;
    assert!(!reply.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn protocols_with_the_same_endpoint_share_a_port() {
    let endpoint = format!("127.0.0.1:{}", crate::component::testing::free_port());
    let yaml = format!("protocols: {{grpc: {{endpoint: '{endpoint}'}}, http: {{endpoint: '{endpoint}'}}}}");
    let gateway = Gateway::start(&yaml).await;
    let shared = gateway.endpoint(0);
    export_all_three(channel(&shared).await, None).await;
    for (path, body) in [
        ("/v1/metrics", metrics(1).encode_to_vec()),
        ("/v1/traces", traces().encode_to_vec()),
    ] {
        let reply = post(&shared, path, &[PROTOBUF], body.into()).await;
        assert_eq!(reply.status, StatusCode::OK);
    }
    assert_eq!(gateway.otlp.servers().len(), 1);
    assert_eq!(arrived(&gateway.sink).len(), 5);
}

#[test]
fn protocols_that_share_a_port_share_its_tls() {
    let yaml = "protocols: {grpc: {endpoint: 'localhost:1', tls: {cert_file: a, key_file: b}}, http: {endpoint: 'localhost:1'}}";
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("test.yaml", yaml, &mut problems).unwrap();
    let _ = (ConfigType::of::<OtlpReceiverConfig>().decode)(&node, &mut problems);
    assert!(problems.to_string().contains("share this endpoint"), "{problems}");
}

#[tokio::test]
async fn full_success_leaves_partial_success_unset() {
    let gateway = Gateway::start(BOTH).await;
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    let answer = client.export(metrics(2)).await.unwrap().into_inner();
    assert_eq!(answer.partial_success, None);
    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF], metrics(2).encode_to_vec())
        .await;
    assert_eq!((reply.status, reply.body), (StatusCode::OK, Bytes::new()));
}

#[test]
fn a_warning_is_a_message_that_rejects_nothing() {
    let outcome = crate::component::PushOutcome {
        rejected_items: 0,
        message: "names will change".to_owned(),
    };
    let answer = ingest::ExportResponse::from(outcome);
    let expected =
        json!({"partialSuccess": {"rejectedDataPoints": "0", "errorMessage": "names will change"}});
    assert_eq!(answer.json(Signal::Metrics), expected);
}

/// A field of bytes, as protobuf writes it.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    crate::batch::wire::edit::push_message(&mut written, number, bytes);
    written
}

#[tokio::test]
async fn unknown_fields_unpacked_numbers_and_all_values_are_taken_unchanged() {
    let gateway = Gateway::start(BOTH).await;
    let values: [&[u8]; 8] = [
        b"\x0a\x01s",                            // a string
        b"\x10\x01",                             // a boolean
        b"\x18\x07",                             // an integer
        b"\x21\x00\x00\x00\x00\x00\x00\xf0\x3f", // a double
        b"\x2a\x04\x0a\x02\x18\x01",             // an array
        b"\x32\x05\x0a\x03\x0a\x01k",            // key and value pairs
        b"\x3a\x01\xff",                         // bytes
        b"",                                     // nothing
    ];
    let mut point = Vec::new();
    for value in values {
        point.extend(field(9, &[field(1, b"k"), field(2, value)].concat()));
    }
    // `bucket_counts` (6, fixed64) and `explicit_bounds` (7, double), unpacked.
    for count in [1_u64, 2] {
        point.push(6 << 3 | 1);
        point.extend(count.to_le_bytes());
    }
    point.push(7 << 3 | 1);
    point.extend(0.5_f64.to_le_bytes());
    point.extend(field(15, b"unknown"));
    let metric = [field(1, b"m"), field(9, &field(1, &point)), field(15, b"new")].concat();
    let request = field(1, &[field(2, &field(2, &metric)), field(14, b"newer")].concat());
    let reply = gateway.post("/v1/metrics", &[PROTOBUF], request.clone()).await;
    assert_eq!(reply.status, StatusCode::OK, "{:?}", reply.rpc_status());
    assert_eq!(arrived(&gateway.sink)[0].1, request, "byte for byte");
    let Payload::Encoded(encoded) = &gateway.sink.batches()[0].payload else {
        panic!("the payload is decoded")
    };
    let points = crate::batch::convert::points(encoded).unwrap();
    let tidegate_engine::Value::Histogram(histogram) = &points[0].value else {
        panic!("{points:?}")
    };
    assert_eq!(
        (&histogram.counts[..], &histogram.bounds[..]),
        (&[1, 2][..], &[0.5][..])
    );
}

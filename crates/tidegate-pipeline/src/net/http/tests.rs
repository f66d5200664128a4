// SPDX-License-Identifier: Apache-2.0

//! Servers as peers see them that are idle, early, late or strange.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;
use tonic_types::StatusExt;

use super::*;
use crate::component::Account;
use crate::net::{Endpoint, SocketFileConfig, Stream};

const SOON: Duration = Duration::from_secs(30);

/// Between two beats of a stream.
const BEAT: Duration = Duration::from_millis(120);

/// `/stream/5` beats five times; a form is waited for; everything else is answered at once, whatever is still to come.
async fn server(config: HttpConfig, max_connections: usize) -> Server {
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&anywhere, &SocketFileConfig::default())
        .await
        .unwrap();
    let answer = |mut request: Request<Incoming>| async move {
        if request.uri().path() == "/form" {
            let _waiting = request.extensions().get().map(Unfinished::wait);
            let _form = request.body_mut().collect().await;
        }
        let beats = request.uri().path().strip_prefix("/stream/");
        let beats = beats.map_or(0, |beats| beats.parse().unwrap());
        let beats = tokio_stream::iter(0..beats).then(|_| async {
            sleep(BEAT).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"beat ")))
        });
        let mut answer = Response::new(StreamBody::new(Box::pin(beats)));
        if request.uri().path() == "/refuse" {
            *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        }
        answer
    };
    start(listener, ConnectionLimits::plain(max_connections), config, answer)
}

async fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { host, port } = server.local().clone() else {
        panic!("it is bound to TCP");
    };
    TcpStream::connect((host, port)).await.unwrap()
}

/// All that is answered to a request until the connection is closed.
async fn ask(server: &Server, request: &[u8]) -> String {
    let mut stream = connect(server).await;
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer))
        .await
        .expect("it is closed")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

/// A connection that has its answer and is kept.
async fn answered(server: &Server) -> TcpStream {
    let mut stream = connect(server).await;
    again(&mut stream).await;
    stream
}

/// Asks once more.
async fn again(stream: &mut TcpStream) {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"0\r\n\r\n") {
        let read = timeout(SOON, stream.read_buf(&mut answer))
            .await
            .expect("an answer");
        assert!(read.unwrap() > 0, "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_reaches_who_sends_it_all_first() {
    /// More bytes than the system buffers for a client that reads nothing.
    const BYTES: usize = 24 << 20;
    let server = server(HttpConfig::default(), 8).await;
    let mut stream = connect(&server).await;
    let head = format!("POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: {BYTES}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..BYTES >> 20 {
        let sent = timeout(SOON, stream.write_all(&[b'x'; 1 << 20])).await;
        sent.expect("it reads").expect("it lets us send");
    }
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer))
        .await
        .expect("an end")
        .unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn who_has_no_work_makes_room_for_who_comes() {
    let server = server(HttpConfig::default(), 8).await;
    let mut kept = Vec::new();
    for _ in 0..8 {
        kept.push(answered(&server).await);
    }
    let begun = Instant::now();
    let _another = answered(&server).await;
    let waited = begun.elapsed();
    assert!(waited < EXPENDABLE_AFTER + Duration::from_secs(2), "{waited:?}");
    // One of them was asked to go, the others are kept.
    let mut gone = 0;
    for stream in &mut kept {
        let end = timeout(Duration::from_millis(50), stream.read_u8()).await;
        gone += usize::from(end.is_ok());
    }
    // The last place is kept free, as soon as there is one to free. On a busy machine a further one is asked meanwhile.
    assert!((1..=4).contains(&gone), "{gone}");
}

#[tokio::test]
async fn a_reader_of_one_request_makes_room_at_once_and_a_returning_one_stays() {
    let server = server(HttpConfig::pages(), 3).await;
    let mut used = answered(&server).await;
    again(&mut used).await;
    let _once = [answered(&server).await, answered(&server).await];
    let begun = Instant::now();
    let _another = answered(&server).await;
    assert!(begun.elapsed() < EXPENDABLE_AFTER, "{:?}", begun.elapsed());
    again(&mut used).await;
}

#[tokio::test]
async fn a_reader_whose_form_does_not_come_makes_room() {
    let server = server(HttpConfig::pages(), 2).await;
    let mut halves = Vec::new();
    for _ in 0..2 {
        let mut half = connect(&server).await;
        let head = b"POST /form HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nq";
        half.write_all(head).await.unwrap();
        halves.push(half);
    }
    answered(&server).await;
}

#[tokio::test]
async fn half_a_request_makes_room_and_a_stream_does_not() {
    let server = server(HttpConfig::default(), 2).await;
    let mut half = connect(&server).await;
    half.write_all(b"POST / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    // Twice the time after which the server closes an idle connection.
    const BEATS: usize = 42;
    let request = format!("GET /stream/{BEATS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let stream = ask(&server, request.as_bytes());
    let another = async {
        sleep(BEAT).await;
        answered(&server).await
    };
    let (stream, _another) = tokio::join!(stream, another);
    assert_eq!(stream.matches("beat").count(), BEATS);
    assert_eq!(half.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
}

#[tokio::test]
async fn a_stream_is_neither_idle_nor_stalled_while_it_says_nothing() {
    let config = HttpConfig {
        max_idle: Some(BEAT / 3),
        max_stall: Some(BEAT / 3),
        ..HttpConfig::default()
    };
    let server = server(config, 8).await;
    let request = b"GET /stream/5 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = ask(&server, request).await;
    assert_eq!(answer.matches("beat").count(), 5, "{answer}");
}

#[tokio::test]
async fn an_idle_connection_over_http_2_is_closed() {
    let config = HttpConfig {
        max_idle: Some(Duration::from_millis(100)),
        ..HttpConfig::default()
    };
    let server = server(config, 8).await;
    let stream = connect(&server).await;
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let closed = tokio::spawn(connection);
    let request = Request::get("http://localhost/").body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert_eq!(timeout(SOON, answer).await.unwrap().unwrap().status(), 200);
    // The peer still has its handle: only the server can end it.
    let closed = timeout(SOON, closed).await;
    assert!(closed.is_ok(), "it is kept forever");
    drop(client);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// The next frame: its kind, flags, stream and payload.
async fn next_frame(stream: &mut TcpStream) -> (u8, u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    let reading = async {
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        payload
    };
    let payload = timeout(SOON, reading).await.expect("a frame");
    let [_, _, _, kind, flags, stream @ ..] = head;
    (kind, flags, u32::from_be_bytes(stream), payload)
}

#[tokio::test]
async fn a_request_that_crosses_the_farewell_is_answered_to_its_end() {
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const ACK: u8 = 1;
    const END_STREAM: u8 = 1;
    const END_STREAM_AND_HEADERS: u8 = 5;
    let config = HttpConfig {
        max_idle: Some(Duration::from_millis(100)),
        ..HttpConfig::default()
    };
    let server = server(config, 8).await;
    let mut client = connect(&server).await;
    // By hand: a client library sends nothing more once it is asked to go.
    let ask = |stream: u32, path: &str| {
        // GET, http, then the path and the authority `x` as literals.
        let length = u8::try_from(path.len()).unwrap();
        let block = [&[0x82, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b'x']].concat();
        frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let first = [preface, frame(SETTINGS, 0, 0, &[]), ask(1, "/")].concat();
    client.write_all(&first).await.unwrap();
    let mut is_asked_to_go = false;
    let mut beats = 0;
    let beats_wanted = IDLE_GRACE.div_duration_f64(BEAT) as u32 + 5;
    loop {
        let (kind, flags, stream, payload) = next_frame(&mut client).await;
        match kind {
            GOAWAY if !is_asked_to_go => {
                is_asked_to_go = true;
                let late = ask(3, &format!("/stream/{beats_wanted}"));
                client.write_all(&late).await.unwrap();
            }
            // The server asks whether its farewell has come.
            PING if flags != ACK => {
                client.write_all(&frame(PING, ACK, 0, &payload)).await.unwrap();
            }
            0 if stream == 3 => {
                beats += u32::from(!payload.is_empty());
                if flags == END_STREAM {
                    break;
                }
            }
            _ => {}
        }
    }
    assert_eq!(beats, beats_wanted);
}

#[tokio::test]
async fn heads_have_at_most_64_kib_and_those_of_readers_16() {
    let long = |bytes: usize| {
        let value = "x".repeat(bytes);
        format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nlong: {value}\r\n\r\n")
    };
    for (config, fits, is_too_long) in [
        (HttpConfig::default(), 60 << 10, 70 << 10),
        (HttpConfig::pages(), 15 << 10, 18 << 10),
    ] {
        let server = server(config, 8).await;
        let answer = ask(&server, long(fits).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let refused = ask(&server, long(is_too_long).as_bytes()).await;
        assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
        let (client, connection) = h2::client::handshake(connect(&server).await).await.unwrap();
        tokio::spawn(connection);
        for (bytes, status) in [(fits, 200), (is_too_long, 431)] {
            let request = Request::get("http://localhost/").header("long", "x".repeat(bytes));
            let mut client = client.clone().ready().await.unwrap();
            let (answer, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
            assert_eq!(
                timeout(SOON, answer).await.unwrap().unwrap().status(),
                status,
                "{bytes}"
            );
        }
    }
}

#[tokio::test]
async fn a_large_head_without_room_is_refused_before_its_body_is_waited_for() {
    let memory = Arc::new(Account::default());
    let config = HttpConfig {
        served_by: Arc::new(ServedBy::component("test", memory.clone())),
        ..HttpConfig::default()
    };
    let server = server(config, 8).await;
    let (client, connection) = h2::client::handshake(connect(&server).await).await.unwrap();
    tokio::spawn(connection);
    // The body does not come, and the server waits for it.
    let begin = async |content_type: &str, bytes: usize| {
        let request = Request::post("http://localhost/form")
            .header("content-type", content_type)
            .header("long", "x".repeat(bytes));
        let mut client = client.clone().ready().await.unwrap();
        client.send_request(request.body(()).unwrap(), false).unwrap()
    };
    let waiting = begin("text/plain", 20 << 10).await;
    timeout(SOON, async {
        while memory.reserved_bytes() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("it is on the account");
    assert!(memory.reserved_bytes() > 20 << 10);
    memory.set_default_limit(1 << 10);
    let (answer, _body) = begin("text/plain", 20 << 10).await;
    let refused = timeout(SOON, answer).await.unwrap().unwrap();
    assert_eq!(
        (refused.status(), &refused.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    let (answer, _body) = begin("application/grpc", 20 << 10).await;
    let refused = timeout(SOON, answer).await.unwrap().unwrap();
    let status = tonic::Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let retry = status.get_error_details().retry_info().unwrap().retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(1)));
    let usual = Request::get("http://localhost/").body(()).unwrap();
    let mut another = client.clone().ready().await.unwrap();
    let (answer, _) = another.send_request(usual, true).unwrap();
    assert_eq!(timeout(SOON, answer).await.unwrap().unwrap().status(), 200);
    drop(waiting);
    timeout(SOON, async {
        while memory.reserved_bytes() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("nothing of it stays");
}

#[tokio::test]
async fn connections_without_a_request_go_while_memory_is_over_its_limit() {
    let memory = Arc::new(Account::default());
    memory.set_default_limit(1 << 30);
    let served_by = ServedBy::component("test", memory.clone());
    let config = HttpConfig {
        served_by: served_by.into(),
        ..Default::default()
    };
    let server = server(config, 100).await;
    let mut idle = Vec::new();
    for _ in 0..2 * 16 {
        idle.push(answered(&server).await);
    }
    let mut busy = connect(&server).await;
    busy.write_all(b"GET /stream/20 HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let stays = timeout(Duration::from_millis(300), idle[0].read(&mut [0])).await;
    assert!(stays.is_err(), "memory is not over its limit");
    memory.note(2 << 30);
    for mut stream in idle {
        let read = timeout(SOON, stream.read_to_end(&mut Vec::new())).await;
        read.expect("it is closed").unwrap();
    }
    memory.note(0);
    let mut answer = Vec::new();
    while !answer.ends_with(b"0\r\n\r\n") {
        let read = timeout(SOON, busy.read_buf(&mut answer)).await.unwrap().unwrap();
        assert!(read > 0, "a request is answered to its end");
    }
    assert_eq!(answer.windows(5).filter(|part| part == b"beat ").count(), 20);
}

#[tokio::test]
async fn a_host_is_demanded_and_a_local_page_answers_to_no_other_name() {
    let open = server(HttpConfig::default(), 8).await;
    let status = async |server: &Server, host: &str| {
        let request = format!("GET / HTTP/1.1\r\n{host}connection: close\r\n\r\n");
        let answer = ask(server, request.as_bytes()).await;
        answer[9..12].to_owned()
    };
    assert_eq!(status(&open, "").await, "400");
    assert_eq!(status(&open, "host: a\r\nhost: a\r\n").await, "400");
    assert_eq!(status(&open, "host: evil.example\r\n").await, "200");
    let guarded = HttpConfig {
        allowed_hosts: Some(Arc::new(["gate".to_owned()])),
        ..HttpConfig::default()
    };
    let guarded = server(guarded, 8).await;
    assert_eq!(status(&guarded, "host: evil.example\r\n").await, "403");
    for host in ["gate", "localhost:80", "127.0.0.1"] {
        assert_eq!(
            status(&guarded, &format!("host: {host}\r\n")).await,
            "200",
            "{host}"
        );
    }
}

/// A request from that address, as the service sees it.
async fn sender_of_a_request_from(peer: &str) -> Option<std::net::IpAddr> {
    let (mut client, stream) = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    };
    let connection = Connection {
        stream: Stream::Tcp(stream),
        peer: Peer::Tcp(peer.parse().unwrap()),
        stopping: Default::default(),
        crowd: Default::default(),
        over_memory: Default::default(),
        is_proxied: false,
        endpoint: "".into(),
    };
    let (seen, mut senders) = tokio::sync::mpsc::channel(1);
    let config = HttpConfig::default();
    let serving = serve(connection, &config, move |request: Request<Incoming>| {
        let sender = request.extensions().get().map(|sender: &Sender| sender.address);
        seen.try_send(sender).unwrap();
        async { Response::new(String::new()) }
    });
    let ask = async {
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        senders.recv().await.unwrap()
    };
    timeout(SOON, async { tokio::join!(serving, ask).1 })
        .await
        .expect("it is answered")
}

#[tokio::test]
async fn requests_know_the_address_of_their_sender_where_it_counts() {
    let sender = sender_of_a_request_from("192.0.2.7:5").await;
    assert_eq!(sender, Some("192.0.2.7".parse().unwrap()));
    assert_eq!(sender_of_a_request_from("127.0.0.1:5").await, None);
}

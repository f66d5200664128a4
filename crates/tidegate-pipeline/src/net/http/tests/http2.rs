// SPDX-License-Identifier: Apache-2.0

//! HTTP/2 connections that the server asks to close.

use super::*;

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

// SPDX-License-Identifier: Apache-2.0

//! The heads of requests: their size, their memory and their host.

use tonic_types::StatusExt;

use super::*;

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

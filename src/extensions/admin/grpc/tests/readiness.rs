// SPDX-License-Identifier: Apache-2.0

//! Reads while a replica is not ready, or its store does not confirm the values.

use super::*;

/// Makes the replica unready for a moment while a reader waits for the expression.
async fn is_unready_for_a_moment(shared: &Shared, computed: &Computed) {
    until(|| computed.latch.entered() == 1).await;
    shared.health.hold("receivers::partials", Some("stale"));
    shared.health.hold("receivers::partials", None);
    computed.latch.open();
}

#[tokio::test]
async fn the_wait_for_the_store_ends_when_the_client_leaves() {
    let mut gateway = Gateway::start().await;
    let (shared, store) = (gateway.admin.base.shared.clone(), Unconfirmed::new());
    shared
        .health
        .confirm_by("receivers::partials", Some(store.clone()));
    let list = "/tidegate.v1.Query/List";
    let call = gateway.call::<_, messages::ListResponse>(list, messages::ListRequest {});
    tokio::select! {
        answer = call => panic!("no store has confirmed the values: {answer:?}"),
        () = until(|| store.readers() == 1) => {}
    }
    until(|| store.readers() == 0).await;
}

/// A client of this library would end the call itself.
#[tokio::test]
async fn the_wait_for_the_store_ends_at_the_deadline_of_the_client() {
    let gateway = Gateway::start().await;
    let (shared, store) = (gateway.admin.base.shared.clone(), Unconfirmed::new());
    shared
        .health
        .confirm_by("receivers::partials", Some(store.clone()));
    let Endpoint::Tcp { host, port } = gateway.admin.server.local() else {
        panic!("not TCP");
    };
    let stream = TcpStream::connect((host.as_str(), port)).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://localhost/tidegate.v1.Query/List")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "50m")
        .body(())
        .unwrap();
    let mut client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    // An empty message.
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    let code = Code::DeadlineExceeded as i32;
    assert_eq!(answer.headers()["grpc-status"], code.to_string());
    until(|| store.readers() == 0).await;
}

#[tokio::test]
async fn an_answer_is_refused_if_the_replica_becomes_unready_meanwhile() {
    let (mut gateway, computed) = Gateway::with_computed().await;
    let shared = gateway.admin.base.shared.clone();
    let list = "/tidegate.v1.Query/List";
    let call = gateway.call::<_, messages::ListResponse>(list, messages::ListRequest {});
    let (answer, ()) = tokio::join!(call, becomes_unready(&shared, &computed));
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("stale"), "{status}");
}

#[tokio::test]
async fn an_answer_is_refused_if_the_replica_was_unready_for_a_moment() {
    let (mut gateway, computed) = Gateway::with_computed().await;
    let shared = gateway.admin.base.shared.clone();
    let list = "/tidegate.v1.Query/List";
    let call = gateway.call::<_, messages::ListResponse>(list, messages::ListRequest {});
    let (answer, ()) = tokio::join!(call, is_unready_for_a_moment(&shared, &computed));
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("not ready"), "{status}");
    let again: Result<messages::ListResponse, _> = gateway.call(list, messages::ListRequest {}).await;
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test]
async fn a_watch_ends_when_the_replica_is_not_ready() {
    let mut gateway = Gateway::start().await;
    let shared = gateway.admin.base.shared.clone();
    gateway.depth.observe("m", 4.0);
    let ask = messages::WatchRequest {
        name: "queue_depth".to_owned(),
        ..messages::WatchRequest::default()
    };
    let path = "/tidegate.v1.Query/Watch";
    let mut stream: Streaming<messages::WatchResponse> = gateway.stream(path, ask.clone()).await.unwrap();
    assert_eq!(next(&mut stream).await.values[0].value, Some(4.0));
    shared.health.hold("receivers::partials", Some("stale"));
    gateway.depth.observe("m", 5.0);
    let end = timeout(PATIENCE, stream.message()).await;
    let ended = end.expect("an end in time").unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    assert!(ended.message().contains("watch again"), "{ended}");
    let refused: Result<Streaming<messages::WatchResponse>, _> = gateway.stream(path, ask.clone()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    shared.health.hold("receivers::partials", None);
    let mut stream: Streaming<messages::WatchResponse> = gateway.stream(path, ask).await.unwrap();
    assert_eq!(next(&mut stream).await.values[0].value, Some(5.0));
}

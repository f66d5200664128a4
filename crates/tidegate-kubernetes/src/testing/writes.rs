// SPDX-License-Identifier: Apache-2.0

//! Writes of objects, with the conflicts of an API server.

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{ServerState, key_of, whole};

/// Reads the body of a request.
pub(super) async fn read_object(stream: &mut TcpStream, head: &str) -> Option<Value> {
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1)?;
    let mut body = vec![0; length.split('\r').next()?.parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    serde_json::from_slice(&body).ok()
}

/// Creates an object that is not there (POST), or replaces one of the same version (PUT).
pub(super) fn write_object(state: &mut ServerState, head: &str, path: &str, mut object: Value) -> String {
    state.requests.push(path.to_owned());
    let namespace = path.split("/namespaces/").nth(1).unwrap_or_default();
    let mut parts = namespace.split('/');
    let (namespace, resource) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    object["metadata"]["namespace"] = namespace.into();
    let key = (resource.to_owned(), key_of(&object));
    let known = state
        .objects
        .get(&key)
        .map(|known| known["metadata"]["resourceVersion"].clone());
    let is_same = match &known {
        None => head.starts_with("POST "),
        Some(version) => head.starts_with("PUT ") && *version == object["metadata"]["resourceVersion"],
    };
    if !is_same || state.refuses_writes {
        state.conflicts += 1;
        return whole(
            "409 Conflict",
            &json!({"message": "the object has been modified", "code": 409}),
        );
    }
    state.version += 1;
    object["metadata"]["resourceVersion"] = state.version.to_string().into();
    state.objects.insert(key, object.clone());
    whole("200 OK", &object)
}

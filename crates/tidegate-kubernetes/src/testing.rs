// SPDX-License-Identifier: Apache-2.0

//! A small API server for tests: lists in pages, watches as chunked streams over HTTP/1.1, and faults on demand.

mod writes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use self::writes::{read_object, write_object};
use crate::client::ApiServer;

/// Bytes for the watches of a resource. `None`: the connection ends.
type Sent = (String, Option<Vec<u8>>);

#[derive(Default)]
struct ServerState {
    version: u64,
    /// Objects by resource and by namespace and name.
    objects: BTreeMap<(String, String), Value>,
    /// Events with their versions and resources.
    events: Vec<(u64, String, String)>,
    requests: Vec<String>,
    token: Option<String>,
    /// Watches of versions before this one get a status of 410.
    oldest: u64,
    page_objects: usize,
    lists_now: usize,
    most_lists: usize,
    write_delay: Duration,
    refuses_writes: bool,
    waiting_writes: usize,
    conflicts: usize,
}

/// The time that an answer to a list takes.
const LIST_TIME: Duration = Duration::from_millis(5);

impl ServerState {
    fn begin(&mut self, is_watch: bool) {
        self.lists_now += usize::from(!is_watch);
        self.most_lists = self.most_lists.max(self.lists_now);
    }
}

/// The server. Its end closes all connections.
pub struct FakeApiServer {
    address: SocketAddr,
    state: Arc<Mutex<ServerState>>,
    sender: broadcast::Sender<Sent>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A kubeconfig file for the server with this URL, as text.
pub fn kubeconfig_of(url: &str) -> String {
    let config = json!({
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url}}],
    });
    config.to_string()
}

impl FakeApiServer {
    /// Starts a server on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (sender, _) = broadcast::channel(1024);
        let mut server = Self {
            address: listener.local_addr().expect("an address"),
            state: Arc::default(),
            sender,
            task: None,
        };
        server.state.lock().page_objects = 500;
        server.serve(listener);
        server
    }

    fn serve(&mut self, listener: TcpListener) {
        let (state, sender) = (self.state.clone(), self.sender.clone());
        self.task = Some(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, state.clone(), sender.clone()));
            }
        }));
    }

    /// Closes all connections and the port. The objects stay.
    pub fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// Opens the same port again.
    pub async fn restart(&mut self) {
        self.stop();
        loop {
            if let Ok(listener) = TcpListener::bind(self.address).await {
                return self.serve(listener);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig file for the server, as text.
    pub fn kubeconfig(&self) -> String {
        kubeconfig_of(&self.url())
    }

    /// The server for a client.
    pub fn server(&self) -> ApiServer {
        ApiServer::at(self.url().parse().expect("a URL"))
    }

    /// The paths with queries of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// The number of requests whose path and query have this text.
    pub fn count(&self, text: &str) -> usize {
        self.requests().iter().filter(|path| path.contains(text)).count()
    }

    /// The number of lists that were under way together, at most.
    pub fn most_lists(&self) -> usize {
        self.state.lock().most_lists
    }

    /// An object of a resource.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (resource.to_owned(), format!("{namespace}/{name}"));
        self.state.lock().objects.get(&key).cloned()
    }

    /// Lets each write wait before it takes effect.
    pub fn delay_writes(&self, delay: Duration) {
        self.state.lock().write_delay = delay;
    }

    /// Refuses all further writes with a conflict.
    pub fn refuse_writes(&self) {
        self.state.lock().refuses_writes = true;
    }

    /// The number of writes that wait now.
    pub fn waiting_writes(&self) -> usize {
        self.state.lock().waiting_writes
    }

    /// The number of writes that were refused because of another one.
    pub fn conflicts(&self) -> usize {
        self.state.lock().conflicts
    }

    /// Demands this bearer token.
    pub fn demand(&self, token: &str) {
        self.state.lock().token = Some(token.to_owned());
    }

    /// Limits pages to this many objects, whatever the client asks for.
    pub fn limit_pages(&self, objects: usize) {
        self.state.lock().page_objects = objects;
    }

    /// Creates or changes an object of a resource, with its event.
    pub fn apply(&self, resource: &str, object: &Value) {
        self.change(resource, object, true);
    }

    /// The same without an event: the watches miss it.
    pub fn apply_quietly(&self, resource: &str, object: &Value) {
        self.change(resource, object, false);
    }

    fn change(&self, resource: &str, object: &Value, with_event: bool) {
        let mut object = object.clone();
        let mut state = self.state.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let key = (resource.to_owned(), key_of(&object));
        let known = state.objects.insert(key, object.clone());
        drop(state);
        if with_event {
            let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
            self.send_event(resource, kind, &object);
        }
    }

    /// Deletes an object, with its event.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        if let Some(object) = self.take(resource, namespace, name) {
            self.send_event(resource, "DELETED", &object);
        }
    }

    /// The same without an event.
    pub fn delete_quietly(&self, resource: &str, namespace: &str, name: &str) {
        self.take(resource, namespace, name);
    }

    fn take(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut state = self.state.lock();
        state.version += 1;
        let mut object = state
            .objects
            .remove(&(resource.to_owned(), format!("{namespace}/{name}")))?;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        Some(object)
    }

    /// Sends an event to the watches of a resource. Later watches of older versions get it too.
    pub fn send_event(&self, resource: &str, kind: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        let mut state = self.state.lock();
        let version = state.version;
        if matches!(kind, "ADDED" | "MODIFIED" | "DELETED") {
            state.events.push((version, resource.to_owned(), line.clone()));
        }
        drop(state);
        self.send_bytes(resource, line.as_bytes());
    }

    /// Sends any bytes to the watches of a resource.
    pub fn send_bytes(&self, resource: &str, bytes: &[u8]) {
        let _ = self.sender.send((resource.to_owned(), Some(bytes.to_vec())));
    }

    /// Ends the watches of a resource.
    pub fn end_watches(&self, resource: &str) {
        let _ = self.sender.send((resource.to_owned(), None));
    }

    /// Sends a bookmark of the current version.
    pub fn bookmark(&self, resource: &str) {
        let version = self.state.lock().version.to_string();
        self.send_event(
            resource,
            "BOOKMARK",
            &json!({"metadata": {"resourceVersion": version}}),
        );
    }

    /// Forgets the events so far: watches of older versions get a status of 410.
    pub fn forget_events(&self) {
        let mut state = self.state.lock();
        state.version += 1;
        state.oldest = state.version;
    }
}

fn key_of(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<ServerState>>, sender: broadcast::Sender<Sent>) {
    while let Some(head) = read_head(&mut stream).await {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut events = sender.subscribe();
        if !head.starts_with("GET ") {
            let Some(object) = read_object(&mut stream, &head).await else {
                return;
            };
            let delay = {
                let mut state = state.lock();
                state.waiting_writes += 1;
                state.write_delay
            };
            tokio::time::sleep(delay).await;
            let answer = {
                let mut state = state.lock();
                state.waiting_writes -= 1;
                write_object(&mut state, &head, &path, object)
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            continue;
        }
        let is_watch = path.contains("watch=1");
        state.lock().begin(is_watch);
        let answer = answer(&state, &path, &head);
        if !is_watch {
            tokio::time::sleep(LIST_TIME).await;
            state.lock().lists_now -= 1;
        }
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        if !answer.contains("chunked") {
            continue;
        }
        let resource = resource_of(&path).to_owned();
        while let Ok((to, bytes)) = events.recv().await {
            let chunk = bytes.filter(|_| to == resource);
            match chunk {
                Some(bytes) if write_chunk(&mut stream, &bytes).await.is_err() => return,
                None if to == resource => {
                    let _ = stream.write_all(b"0\r\n\r\n").await;
                    break;
                }
                _ => {}
            }
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.ok()?;
        head.push(byte);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

async fn write_chunk(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let size = format!("{:x}\r\n", bytes.len());
    stream
        .write_all(&[size.as_bytes(), bytes, b"\r\n"].concat())
        .await
}

fn resource_of(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

fn parameter(path: &str, name: &str) -> Option<String> {
    let query = path.split_once('?')?.1;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

fn answer(state: &Mutex<ServerState>, path: &str, head: &str) -> String {
    let mut state = state.lock();
    state.requests.push(path.to_owned());
    let sent = format!(
        "authorization: Bearer {}\r\n",
        state.token.as_deref().unwrap_or_default()
    );
    if state.token.is_some() && !head.to_ascii_lowercase().contains(&sent.to_ascii_lowercase()) {
        return whole(
            "401 Unauthorized",
            &json!({"message": "no such token", "code": 401}),
        );
    }
    if let Some((resource, key)) = single(path) {
        return match state.objects.get(&(resource, key)) {
            Some(object) => whole("200 OK", object),
            None => whole(
                "404 Not Found",
                &json!({"message": "no such object", "code": 404}),
            ),
        };
    }
    if !path.contains("watch=1") {
        return whole("200 OK", &page(&state, path));
    }
    let version = parameter(path, "resourceVersion").and_then(|version| version.parse::<u64>().ok());
    if version.unwrap_or_default() < state.oldest {
        return whole(
            "410 Gone",
            &json!({"message": "too old resource version", "code": 410}),
        );
    }
    let missed = missed(&state, path, version.unwrap_or_default());
    let chunks: String = missed
        .iter()
        .map(|line| format!("{:x}\r\n{line}\r\n", line.len()))
        .collect();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}")
}

/// The resource and the key in the path of a single object.
fn single(path: &str) -> Option<(String, String)> {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split("/namespaces/").nth(1)?.split('/');
    let (namespace, resource, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some((resource.to_owned(), format!("{namespace}/{name}")))
}

/// Events after a version.
fn missed(state: &ServerState, path: &str, version: u64) -> Vec<String> {
    let resource = resource_of(path);
    let events = state.events.iter();
    let new = events.filter(|(at, of, _)| *at > version && of == resource);
    new.map(|(_, _, line)| line.clone()).collect()
}

fn page(state: &ServerState, path: &str) -> Value {
    let resource = resource_of(path);
    let namespace = path
        .split("/namespaces/")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
    let after = parameter(path, "continue").unwrap_or_default();
    let of = state
        .objects
        .iter()
        .filter(|((of, key), _)| of == resource && key.starts_with(&prefix));
    let rest: Vec<_> = of.filter(|((_, key), _)| *key > after).collect();
    let items: Vec<_> = rest
        .iter()
        .take(state.page_objects)
        .map(|(_, object)| *object)
        .collect();
    let is_last = rest.len() <= state.page_objects;
    let next = rest
        .get(state.page_objects.saturating_sub(1))
        .filter(|_| !is_last);
    let next = next.map_or("", |((_, key), _)| key.as_str());
    json!({
        "kind": "List",
        "metadata": {"resourceVersion": state.version.to_string(), "continue": next},
        "items": items,
    })
}

fn whole(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

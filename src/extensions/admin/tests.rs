// SPDX-License-Identifier: Apache-2.0

//! Pages as a client sees them.

mod composites;
mod history;
mod page;
mod queries;

use serde_json::Value;
use tidegate_engine::{
    Attributes, Data, Limits, Metric, Point, Resource, Rule, Series, Table, Temporality, Value as PointValue,
};

use super::*;
use crate::component::testing::{context, settings};
use crate::component::unix_now;
use crate::net::pages::testing::{fetch, post};
use crate::prom::catalog::{max_past_bytes_within, testing};

async fn get(admin: &Admin, path: &str) -> (u16, Value) {
    let (status, body) = fetch(&admin.server.local(), "GET", path).await;
    (status, serde_json::from_str(&body).unwrap())
}

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};

/// Puts the result of a scrape in a table; without a value, the scrape has failed.
pub(super) fn scrape(table: &Table, instance: &str, waiting: Option<i64>) {
    let now = unix_now();
    let target = [("service.name", "vllm"), ("service.instance.id", instance)];
    for point in testing::scrape(&target, "waiting", waiting, now) {
        table.observe(&point, now);
    }
}

pub(super) fn point(name: &str, data: Data, job: &str, value: i64) -> Point {
    let now = unix_now();
    let resource = Resource {
        attributes: [("service.name", job)].into_iter().collect(),
        schema_url: "".into(),
    };
    Point {
        series: Arc::new(Series {
            resource: Arc::new(resource),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "what it is".into(),
                unit: "".into(),
                data,
                metadata: Attributes::default(),
            }),
            attributes: [("pod", "p1")].into_iter().collect(),
        }),
        start: now - 1,
        time: now,
        value: PointValue::Int(value),
        exemplars: Vec::new(),
    }
}

/// A started extension and a table that it can see.
async fn with_table(options: &str) -> (Admin, Arc<Table>) {
    let config = settings::<AdminConfig>(&format!("{{endpoint: 127.0.0.1:0, {options}}}")).get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    admin.base.shared.tables.add(table.clone());
    admin.start().await.unwrap();
    (admin, table)
}

async fn ask(admin: &Admin, query: &str) -> (u16, Value) {
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("query", query)
        .finish();
    let (status, body) = post(&admin.server.local(), "/api/v1/query", &form).await;
    (status, serde_json::from_str(&body).unwrap())
}

/// Admits clients that have a key. It has the text of its challenge.
struct KeyAuthenticator(&'static str);

#[async_trait]
impl crate::component::auth::Authenticator for KeyAuthenticator {
    async fn check(
        &self,
        headers: &http::HeaderMap,
        _: Option<std::net::IpAddr>,
    ) -> Result<(), crate::component::auth::Unauthenticated> {
        if headers.contains_key("x-key") {
            Ok(())
        } else {
            Err(crate::component::auth::Unauthenticated::Wrong("no key"))
        }
    }

    fn identity(&self, _: &http::HeaderMap) -> Option<crate::component::account::SenderKey> {
        None
    }

    fn challenge(&self) -> http::HeaderValue {
        http::HeaderValue::from_static(self.0)
    }
}

fn services(challenge: &'static str) -> crate::component::services::Services {
    crate::component::services::Services {
        authenticator: Some(Arc::new(KeyAuthenticator(challenge))),
        ..Default::default()
    }
}

/// The configuration of an extension that asks for a key.
const WITH_KEY: &str = "endpoint: 127.0.0.1:0\nauth: {authenticator: door}";

/// A started extension that asks for a key with this challenge.
async fn with_authenticator(challenge: &'static str) -> Admin {
    let config = settings::<AdminConfig>(WITH_KEY).get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    let services = services(challenge);
    admin.base.shared.services.add("door".to_owned(), services);
    admin.start().await.unwrap();
    admin
}

#[tokio::test]
async fn unauthorised_clients_are_refused_in_their_own_protocol() {
    let admin = Admin::new(
        settings::<AdminConfig>(WITH_KEY).get(),
        context("extensions", "admin"),
    )
    .unwrap();
    let missing = admin.start().await.unwrap_err().to_string();
    assert!(
        missing.contains("`door` is not among `service::extensions`"),
        "{missing}"
    );
    admin.base.shared.services.add("door".to_owned(), services("Key"));
    admin.start().await.unwrap();
    let endpoint = admin.server.local();
    for path in ["/api/v1/composites", "/api/v1/query?query=1", "/-/healthy"] {
        assert_eq!(fetch(&endpoint, "GET", path).await.0, 401, "{path}");
    }
    let Endpoint::Tcp { host, port } = endpoint else {
        panic!("not TCP");
    };
    let channel = tonic::transport::Channel::from_shared(format!("http://{host}:{port}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/tidegate.v1.Query/List");
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let refused = grpc
        .unary(tonic::Request::new(()), path, codec)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let path = http::uri::PathAndQuery::from_static("/tidegate.v1.Query/List");
    let mut request = tonic::Request::new(());
    request.metadata_mut().insert("x-key", "1".parse().unwrap());
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    grpc.ready().await.unwrap();
    grpc.unary(request, path, codec).await.unwrap();
}

#[test]
fn limits_that_are_not_configured_come_from_the_memory_limit() {
    let query = QueryConfig::default();
    assert_eq!(query.max_samples(usize::MAX), 20_000_000);
    assert_eq!(query.max_samples(128 << 20), 1 << 20);
    assert_eq!(max_past_bytes_within(usize::MAX), 256 << 20);
    assert_eq!(max_past_bytes_within(256 << 20), 32 << 20);
    assert_eq!(HistoryConfig::default().kept_past(Vec::new()).max_bytes, None);
    let configured = settings::<AdminConfig>(
        "{endpoint: '127.0.0.1:0', query: {max_samples: 7}, history: {max_bytes: 1GiB}}",
    );
    let configured = configured.get::<AdminConfig>();
    assert_eq!(configured.query.max_samples(1 << 20), 7);
    let past = configured.history.kept_past(Vec::new());
    assert_eq!(past.max_bytes, Some(1 << 30));
}

#[tokio::test]
async fn forms_are_on_the_account_and_short_ones_are_taken_without_room() {
    let (admin, _) = with_table("").await;
    let memory = admin.base.shared.memory.clone();
    let form = |bytes: usize| format!("query=1&rest={}", "x".repeat(bytes));
    let endpoint = admin.server.local();
    let (status, _) = post(&endpoint, "/api/v1/query", &form(100_000)).await;
    assert_eq!((status, memory.reserved_bytes()), (200, 0));
    memory.set_default_limit(1);
    memory.hold(1 << 20);
    let (status, _) = post(&endpoint, "/api/v1/query", &form(100)).await;
    assert_eq!(status, 200);
    let (status, _) = post(&endpoint, "/api/v1/query", &form(100_000)).await;
    assert_eq!(status, 503);
    let (status, _) = post(&endpoint, "/api/v1/query", &form(300_000)).await;
    assert!([413, 503].contains(&status), "{status}");
    assert_eq!(memory.reserved_bytes(), 1 << 20);
}

/// A parameter of a byte takes a hundred when it is read.
#[tokio::test]
async fn a_request_has_a_thousand_parameters_and_no_more() {
    let (admin, _) = with_table("").await;
    let endpoint = admin.server.local();
    let form = |more: usize| format!("query=1{}", "&a".repeat(more));
    for (more, status) in [(999, 200), (1000, 413), (100_000, 413)] {
        assert_eq!(
            post(&endpoint, "/api/v1/query", &form(more)).await.0,
            status,
            "{more}"
        );
    }
    assert_eq!(
        fetch(&endpoint, "GET", &format!("/api/v1/query?{}", form(999)))
            .await
            .0,
        200
    );
    assert_eq!(
        fetch(&endpoint, "GET", &format!("/api/v1/query?{}", form(1000)))
            .await
            .0,
        413
    );
}

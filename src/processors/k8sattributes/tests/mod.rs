// SPDX-License-Identifier: Apache-2.0

mod association;
mod config;
mod extraction;
mod running;
mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_engine::{Attributes, Resource};
use tidegate_kubernetes::{KubeObject, ObjectKind, StoredObject};

use super::config::K8sAttributesConfig;
use super::counters::MatchCounters;
use super::enrich::Enricher;
use super::rules::PodRules;
use super::table::{Objects, PodTable, TableBuilder};
use crate::component::Account;
use crate::component::testing::options;

const GRACE: Duration = Duration::from_secs(120);

/// Attributes of a resource.
type Given = &'static [(&'static str, &'static str)];

/// Attributes as `name=value`.
type Expected = &'static [&'static str];

/// A pod as an API server has it.
fn pod(name: &str, ip: &str, started: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-05T09:59:58Z",
            "labels": {"app": "web", "app.kubernetes.io/component": "front", "pod-template-hash": "7d4b9c"},
            "annotations": {"team": "blue", "resource.opentelemetry.io/service.name": "storefront"},
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "uid-rs", "controller": true},
            ],
        },
        "spec": {
            "nodeName": "node-1", "hostname": "web-host",
            "containers": [
                {"name": "app", "image": "registry:5000/shop/web:1.2"},
                {"name": "log", "image": "shop/log@sha256:ab"},
            ],
        },
        "status": {
            "podIP": ip, "hostIP": "192.168.0.1", "startTime": started,
            "containerStatuses": [
                {"name": "app", "containerID": "containerd://aa", "restartCount": 3},
                {"name": "log", "containerID": "containerd://bb"},
            ],
        },
    })
}

fn replica_set() -> Value {
    json!({"metadata": {
        "name": "web-7d4b9c", "namespace": "shop", "uid": "uid-rs", "labels": {"app": "web"},
        "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "uid-deploy", "controller": true}],
    }})
}

fn object(kind: ObjectKind, json: &Value) -> Arc<StoredObject> {
    let object = KubeObject::from_json(kind, json.to_string().as_bytes()).unwrap();
    StoredObject::without_watch(object)
}

fn objects(all: &[(ObjectKind, Value)]) -> Vec<Objects> {
    let each = all.iter().map(|(kind, json)| (*kind, vec![object(*kind, json)]));
    each.collect()
}

/// The rules of options, a builder of tables and the last table.
struct World {
    rules: Arc<PodRules>,
    builder: TableBuilder,
    table: PodTable,
    account: Arc<Account>,
}

impl World {
    fn new(yaml: &str) -> Self {
        let config: K8sAttributesConfig = options(yaml).unwrap();
        let rules = Arc::new(PodRules::new(&config).unwrap());
        let account = Arc::<Account>::default();
        Self {
            builder: TableBuilder::new(rules.clone(), account.clone(), GRACE),
            rules,
            table: PodTable::default(),
            account,
        }
    }

    fn of(yaml: &str, all: &[(ObjectKind, Value)]) -> Self {
        let mut world = Self::new(yaml);
        world.build(&objects(all), Instant::now());
        world
    }

    fn build(&mut self, objects: &[Objects], now: Instant) {
        self.table = self.builder.build(objects, now).unwrap();
    }

    /// The attributes that a resource gets, as `name=value`. Empty: it stays.
    fn added(&self, attributes: &[(&str, &str)], peer: Option<&str>) -> Vec<String> {
        let before: Attributes = attributes.iter().copied().collect();
        let enricher = Enricher {
            rules: &self.rules,
            table: Some(&self.table),
            peer: peer.map(|ip| ip.parse::<IpAddr>().unwrap()),
            counters: &MatchCounters::new(&"k8sattributes".into()),
        };
        let resource = Resource {
            attributes: before.clone(),
            ..Resource::default()
        };
        let Some(after) = enricher.enriched(&resource) else {
            return Vec::new();
        };
        let new = after
            .attributes
            .iter()
            .filter(|(key, _)| before.get(key).is_none());
        new.map(|(key, value)| format!("{key}={value}")).collect()
    }
}

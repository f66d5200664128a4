// SPDX-License-Identifier: Apache-2.0

//! Manifests as an API server has them.

use serde_json::{Value, json};

pub(super) fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-7d4b9c-x2x9z", "generateName": "web-7d4b9c-", "namespace": "shop", "uid": "6f1f-1",
            "resourceVersion": "812", "creationTimestamp": "2026-01-05T10:00:00Z",
            "labels": {"app.kubernetes.io/name": "web"},
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "r1", "controller": true
            }],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {"name": "app", "image": "shop/web:1.2", "ports": [
                    {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                    {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
                ]},
                {"name": "log", "image": "shop/log:3"},
            ],
            "initContainers": [{"name": "proxy", "image": "shop/proxy:2", "restartPolicy": "Always", "ports": [
                {"containerPort": 15090, "protocol": "TCP"},
            ]}],
        },
        "status": {
            "phase": "Running", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}], "hostIP": "192.168.0.1",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "app", "containerID": "containerd://aa", "ready": true},
                {"name": "log", "containerID": "containerd://bb", "ready": true},
            ],
            "initContainerStatuses": [{"name": "proxy", "containerID": "containerd://cc"}],
        },
    })
}

/// The ReplicaSet of [`pod`].
pub(super) fn replica_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": "web-7d4b9c", "namespace": "shop", "uid": "r1",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d1", "controller": true
            }],
        },
    })
}

/// The Job of a pod.
pub(super) fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "report-2938", "namespace": "shop", "uid": "j1",
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": "c1", "controller": true
            }],
        },
    })
}

pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "s1",
            "labels": {"app": "web"}, "annotations": {"team": "shop"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
            "selector": {"app.kubernetes.io/name": "web"},
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"},
                {"name": "admin", "protocol": "TCP", "port": 81, "targetPort": 8081},
            ],
        },
        "status": {"loadBalancer": {}},
    })
}

pub(super) fn endpoints() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "subsets": [{
            "addresses": [{
                "ip": "10.1.0.7", "nodeName": "node-1",
                "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-7d4b9c-x2x9z", "uid": "6f1f-1"},
            }],
            "notReadyAddresses": [{"ip": "10.1.0.8", "hostname": "web-1"}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }],
    })
}

pub(super) fn slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "web-abcde", "namespace": "shop", "generateName": "web-",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.1.0.7"], "nodeName": "node-1", "zone": "eu-1a",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-7d4b9c-x2x9z", "uid": "6f1f-1"},
            },
            {
                "addresses": ["10.1.0.8"], "hostname": "web-1", "conditions": {"ready": false},
                "deprecatedTopology": {"kubernetes.io/hostname": "node-2"},
            },
        ],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}],
    })
}

pub(super) fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "node-1", "labels": {"topology.kubernetes.io/zone": "eu-1a"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "kind://docker/kind/node-1"},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": "node-1"},
                {"type": "InternalIP", "address": "192.168.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-05T10:00:00Z"}],
        },
    })
}

pub(super) fn ingress() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "shop", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "ingressClassName": "nginx",
            "tls": [{"hosts": ["*.shop.example"], "secretName": "tls"}],
            "rules": [
                {"host": "www.shop.example", "http": {"paths": [
                    {"path": "/cart", "pathType": "Prefix", "backend": {"service": {"name": "web"}}},
                    {"pathType": "Prefix", "backend": {"service": {"name": "web"}}},
                ]}},
                {"host": "shop.example"},
            ],
        },
    })
}

pub(super) fn namespace() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"team": "a"}, "annotations": {"cost/unit": "7"}},
        "status": {"phase": "Active"},
    })
}

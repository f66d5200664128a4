// SPDX-License-Identifier: Apache-2.0

use serde_json::json;
use tidegate_kubernetes::ObjectKind as Kind;

use super::super::ingress::matches_host;
use super::objects::{endpoints, ingress, node, pod, service, slice};
use super::*;

pub(super) const NONE: Attached = Attached {
    node: false,
    namespace: false,
    deployment: false,
    job: false,
    cron_job: false,
};

/// The labels of [`pod`].
const POD: [&str; 14] = [
    "pod_annotation_prometheus_io_scrape=true",
    "pod_annotationpresent_prometheus_io_scrape=true",
    "pod_controller_kind=ReplicaSet",
    "pod_controller_name=web-7d4b9c",
    "pod_host_ip=192.168.0.1",
    "pod_ip=10.1.0.7",
    "pod_label_app_kubernetes_io_name=web",
    "pod_labelpresent_app_kubernetes_io_name=true",
    "pod_name=web-7d4b9c-x2x9z",
    "pod_node_name=node-1",
    "pod_phase=Running",
    "pod_ready=true",
    "pod_uid=6f1f-1",
    "namespace=shop",
];

const SERVICE: [&str; 6] = [
    "namespace=shop",
    "service_annotation_team=shop",
    "service_annotationpresent_team=true",
    "service_label_app=web",
    "service_labelpresent_app=true",
    "service_name=web",
];

fn assert_targets(found: Vec<Vec<String>>, expected: &[&[&[&str]]]) {
    let of = |parts: &&[&[&str]]| {
        let mut labels: Vec<_> = parts
            .iter()
            .flat_map(|part| part.iter())
            .map(|label| (*label).to_owned())
            .collect();
        labels.sort();
        labels.dedup();
        labels
    };
    let mut expected: Vec<_> = expected.iter().map(of).collect();
    expected.sort();
    let sort = |mut labels: Vec<String>| {
        labels.sort();
        labels
    };
    let mut found: Vec<_> = found.into_iter().map(sort).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_pod_is_a_target_for_each_port_of_its_containers() {
    let app: &[&str] = &[
        "pod_container_id=containerd://aa",
        "pod_container_image=shop/web:1.2",
        "pod_container_init=false",
        "pod_container_name=app",
        "pod_container_port_protocol=TCP",
    ];
    assert_targets(
        found(KubernetesRole::Pod, NONE, &[(Kind::Pod, pod())]),
        &[
            &[
                &POD,
                app,
                &[
                    "__address__=10.1.0.7:8080",
                    "pod_container_port_name=http",
                    "pod_container_port_number=8080",
                ],
            ],
            &[
                &POD,
                app,
                &[
                    "__address__=10.1.0.7:9090",
                    "pod_container_port_name=metrics",
                    "pod_container_port_number=9090",
                ],
            ],
            &[
                &POD,
                &[
                    "__address__=10.1.0.7",
                    "pod_container_id=containerd://bb",
                    "pod_container_image=shop/log:3",
                    "pod_container_init=false",
                    "pod_container_name=log",
                ],
            ],
            &[
                &POD,
                &[
                    "__address__=10.1.0.7:15090",
                    "pod_container_id=containerd://cc",
                    "pod_container_image=shop/proxy:2",
                    "pod_container_init=true",
                    "pod_container_name=proxy",
                    "pod_container_port_number=15090",
                    "pod_container_port_protocol=TCP",
                ],
            ],
        ],
    );
}

#[test]
fn a_pod_is_a_target_while_it_has_an_address_in_any_phase() {
    let targets = |key: &str, value: &str| {
        let mut pod = pod();
        pod["status"][key] = json!(value);
        found(KubernetesRole::Pod, NONE, &[(Kind::Pod, pod)])
    };
    assert!(targets("podIP", "").is_empty());
    for phase in ["Pending", "Succeeded", "Failed"] {
        let targets = targets("phase", phase);
        assert_eq!(targets.len(), 4, "{phase}");
        assert!(targets[0].contains(&format!("pod_phase={phase}")), "{targets:?}");
    }
}

#[test]
fn addresses_of_version_6_have_brackets() {
    let mut pod = pod();
    pod["status"]["podIP"] = json!("fd00::7");
    let found = found(KubernetesRole::Pod, NONE, &[(Kind::Pod, pod)]);
    let addresses: Vec<_> = found.iter().map(|labels| labels[0].as_str()).collect();
    let expected = ["[fd00::7]", "[fd00::7]:15090", "[fd00::7]:8080", "[fd00::7]:9090"];
    assert_eq!(
        addresses,
        expected.map(|address| format!("__address__={address}"))
    );
}

#[test]
fn a_service_is_a_target_for_each_of_its_ports() {
    let common: &[&str] = &[
        "service_cluster_ip=10.96.0.10",
        "service_port_protocol=TCP",
        "service_type=ClusterIP",
    ];
    assert_targets(
        found(KubernetesRole::Service, NONE, &[(Kind::Service, service())]),
        &[
            &[
                &SERVICE,
                common,
                &[
                    "__address__=web.shop.svc:80",
                    "service_port_name=http",
                    "service_port_number=80",
                ],
            ],
            &[
                &SERVICE,
                common,
                &[
                    "__address__=web.shop.svc:81",
                    "service_port_name=admin",
                    "service_port_number=81",
                ],
            ],
        ],
    );
}

#[test]
fn the_type_of_a_service_decides_about_its_addresses() {
    let of = |kind: &str| {
        let mut service = service();
        service["spec"]["type"] = json!(kind);
        service["spec"]["externalName"] = json!("db.example");
        service["spec"]["loadBalancerIP"] = json!("203.0.113.1");
        found(KubernetesRole::Service, NONE, &[(Kind::Service, service)]).swap_remove(0)
    };
    let has = |labels: &[String], name: &str| labels.iter().any(|label| label.starts_with(name));
    let [external, balanced] = [of("ExternalName"), of("LoadBalancer")];
    assert!(has(&external, "service_external_name=db.example") && !has(&external, "service_cluster_ip"));
    assert!(has(&balanced, "service_loadbalancer_ip=203.0.113.1") && has(&balanced, "service_cluster_ip"));
}

#[test]
fn a_balanced_service_has_the_addresses_that_it_was_given() {
    let table = [
        (json!([]), "192.0.2.1"),
        (json!([{"hostname": "lb.example"}]), "192.0.2.1"),
        (json!([{"ip": "203.0.113.5"}]), "203.0.113.5"),
        (
            json!([{"ip": "203.0.113.5"}, {"hostname": "lb.example"}, {"ip": "2001:db8::5"}]),
            "203.0.113.5,2001:db8::5",
        ),
    ];
    for (given, expected) in table {
        let mut service = service();
        service["spec"]["type"] = json!("LoadBalancer");
        service["spec"]["loadBalancerIP"] = json!("192.0.2.1");
        service["status"]["loadBalancer"]["ingress"] = given;
        let found = found(KubernetesRole::Service, NONE, &[(Kind::Service, service)]);
        let expected = format!("service_loadbalancer_ip={expected}");
        assert!(found[0].contains(&expected), "{found:?} without {expected}");
    }
}

/// The labels of ports of [`pod`] that are not ports of its service.
const FURTHER: [&[&str]; 2] = [
    &[
        "__address__=10.1.0.7:9090",
        "pod_container_image=shop/web:1.2",
        "pod_container_init=false",
        "pod_container_name=app",
        "pod_container_port_name=metrics",
        "pod_container_port_number=9090",
        "pod_container_port_protocol=TCP",
    ],
    &[
        "__address__=10.1.0.7:15090",
        "pod_container_image=shop/proxy:2",
        "pod_container_init=true",
        "pod_container_name=proxy",
        "pod_container_port_number=15090",
        "pod_container_port_protocol=TCP",
    ],
];

/// The labels of the port of [`pod`] that its service has.
const HTTP: &[&str] = &[
    "pod_container_image=shop/web:1.2",
    "pod_container_init=false",
    "pod_container_name=app",
    "pod_container_port_name=http",
    "pod_container_port_number=8080",
    "pod_container_port_protocol=TCP",
];

#[test]
fn endpoints_are_targets_with_the_labels_of_service_and_pod() {
    let of_all: &[&str] = &[
        "endpoints_label_app=web",
        "endpoints_labelpresent_app=true",
        "endpoints_name=web",
    ];
    let of_port: &[&str] = &["endpoint_port_name=http", "endpoint_port_protocol=TCP"];
    let objects = [
        (Kind::Endpoints, endpoints()),
        (Kind::Service, service()),
        (Kind::Pod, pod()),
    ];
    assert_targets(
        found(KubernetesRole::Endpoints, NONE, &objects),
        &[
            &[
                &SERVICE,
                of_all,
                of_port,
                &POD,
                HTTP,
                &[
                    "__address__=10.1.0.7:8080",
                    "endpoint_address_target_kind=Pod",
                    "endpoint_address_target_name=web-7d4b9c-x2x9z",
                    "endpoint_node_name=node-1",
                    "endpoint_ready=true",
                ],
            ],
            &[
                &SERVICE,
                of_all,
                of_port,
                &[
                    "__address__=10.1.0.8:8080",
                    "endpoint_hostname=web-1",
                    "endpoint_ready=false",
                ],
            ],
            &[&SERVICE, of_all, &POD, FURTHER[0]],
            &[&SERVICE, of_all, &POD, FURTHER[1]],
        ],
    );
}

#[test]
fn slices_are_targets_with_the_labels_of_service_and_pod() {
    let of_all: &[&str] = &[
        "endpointslice_address_type=IPv4",
        "endpointslice_label_kubernetes_io_service_name=web",
        "endpointslice_labelpresent_kubernetes_io_service_name=true",
        "endpointslice_name=web-abcde",
    ];
    let of_port: &[&str] = &[
        "endpointslice_port=8080",
        "endpointslice_port_app_protocol=http",
        "endpointslice_port_name=http",
        "endpointslice_port_protocol=TCP",
    ];
    let objects = [
        (Kind::EndpointSlice, slice()),
        (Kind::Service, service()),
        (Kind::Pod, pod()),
    ];
    assert_targets(
        found(KubernetesRole::EndpointSlice, NONE, &objects),
        &[
            &[
                &SERVICE,
                of_all,
                of_port,
                &POD,
                HTTP,
                &[
                    "__address__=10.1.0.7:8080",
                    "endpointslice_address_target_kind=Pod",
                    "endpointslice_address_target_name=web-7d4b9c-x2x9z",
                    "endpointslice_endpoint_conditions_ready=true",
                    "endpointslice_endpoint_conditions_serving=true",
                    "endpointslice_endpoint_conditions_terminating=false",
                    "endpointslice_endpoint_node_name=node-1",
                    "endpointslice_endpoint_zone=eu-1a",
                ],
            ],
            &[
                &SERVICE,
                of_all,
                of_port,
                &[
                    "__address__=10.1.0.8:8080",
                    "endpointslice_endpoint_conditions_ready=false",
                    "endpointslice_endpoint_hostname=web-1",
                    "endpointslice_endpoint_topology_kubernetes_io_hostname=node-2",
                    "endpointslice_endpoint_topology_present_kubernetes_io_hostname=true",
                ],
            ],
            &[&SERVICE, of_all, &POD, FURTHER[0]],
            &[&SERVICE, of_all, &POD, FURTHER[1]],
        ],
    );
}

#[test]
fn slices_of_the_second_family_of_a_service_give_no_targets() {
    let table = [
        ("PreferDualStack", json!(["IPv4", "IPv6"]), 4),
        ("PreferDualStack", json!(["IPv6", "IPv4"]), 0),
        ("RequireDualStack", json!(["IPv6", "IPv4"]), 0),
        ("RequireDualStack", json!([]), 4),
        ("SingleStack", json!(["IPv6"]), 4),
    ];
    for (policy, families, expected) in table {
        let mut service = service();
        service["spec"]["ipFamilyPolicy"] = json!(policy);
        service["spec"]["ipFamilies"] = families.clone();
        let objects = [
            (Kind::EndpointSlice, slice()),
            (Kind::Service, service),
            (Kind::Pod, pod()),
        ];
        let found = found(KubernetesRole::EndpointSlice, NONE, &objects);
        assert_eq!(found.len(), expected, "{policy} {families}");
    }
}

#[test]
fn a_slice_without_a_port_number_keeps_the_bare_address() {
    let mut slice = slice();
    slice["ports"] = json!([{"name": "any"}]);
    let found = found(
        KubernetesRole::EndpointSlice,
        NONE,
        &[(Kind::EndpointSlice, slice)],
    );
    assert_eq!(found[0][0], "__address__=10.1.0.7");
}

#[test]
fn a_node_is_the_target_of_its_kubelet() {
    assert_targets(
        found(KubernetesRole::Node, NONE, &[(Kind::Node, node())]),
        &[&[&[
            "__address__=192.168.0.1:10250",
            "instance=node-1",
            "node_address_Hostname=node-1",
            "node_address_InternalIP=192.168.0.1",
            "node_annotation_node_alpha_kubernetes_io_ttl=0",
            "node_annotationpresent_node_alpha_kubernetes_io_ttl=true",
            "node_condition_ready=true",
            "node_label_topology_kubernetes_io_zone=eu-1a",
            "node_labelpresent_topology_kubernetes_io_zone=true",
            "node_name=node-1",
            "node_provider_id=kind://docker/kind/node-1",
        ]]],
    );
    let mut homeless = node();
    homeless["status"]["addresses"] = json!([{"type": "Other", "address": "x"}]);
    assert!(found(KubernetesRole::Node, NONE, &[(Kind::Node, homeless)]).is_empty());
}

#[test]
fn an_ingress_is_a_target_for_each_path_of_its_hosts() {
    let common: &[&str] = &[
        "ingress_class_name=nginx",
        "ingress_label_app=web",
        "ingress_labelpresent_app=true",
        "ingress_name=shop",
        "namespace=shop",
    ];
    let www: &[&str] = &[
        "__address__=www.shop.example",
        "ingress_host=www.shop.example",
        "ingress_scheme=https",
    ];
    assert_targets(
        found(KubernetesRole::Ingress, NONE, &[(Kind::Ingress, ingress())]),
        &[
            &[common, www, &["ingress_path=/cart"]],
            &[common, www, &["ingress_path=/"]],
            &[
                common,
                &[
                    "__address__=shop.example",
                    "ingress_host=shop.example",
                    "ingress_path=/",
                    "ingress_scheme=http",
                ],
            ],
        ],
    );
}

#[test]
fn patterns_of_hosts_replace_the_first_part_only() {
    let table = [
        ("a.example", "a.example", true),
        ("*.example", "a.example", true),
        ("*.example", "b.a.example", false),
        ("*.example", "example", false),
        ("a.*", "a.example", false),
    ];
    for (pattern, host, expected) in table {
        assert_eq!(matches_host(pattern, host), expected, "{pattern} {host}");
    }
}

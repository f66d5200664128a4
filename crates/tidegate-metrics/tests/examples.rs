//! The examples do what they say.

#[path = "../examples/five_minutes.rs"]
mod five_minutes;
#[path = "../examples/switch.rs"]
mod switch;

#[test]
fn five_minutes_are_enough() {
    five_minutes::main();
}

#[test]
fn switching_changes_nothing_but_where_it_shows() {
    let labels = r#"{dynamo_namespace="demo",dynamo_component="worker",dynamo_endpoint="generate"}"#;
    let expected = format!("dynamo_component_requests_total{labels} 3\n");
    for kind in ["prometheus", "both"] {
        let directory = tempfile::tempdir().unwrap();
        assert!(
            switch::show(kind, directory.path()).unwrap().contains(&expected),
            "{kind}"
        );
    }
    // The labels of a store are in the order of their names.
    let directory = tempfile::tempdir().unwrap();
    let page = switch::show("shm", directory.path()).unwrap();
    let labels = r#"{dynamo_component="worker",dynamo_endpoint="generate",dynamo_namespace="demo"}"#;
    assert!(
        page.contains(&format!("dynamo_component_requests_total{labels} 3\n")),
        "{page}"
    );
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        switch::show("null", directory.path())
            .unwrap()
            .matches(" 3\n")
            .count(),
        0
    );
}

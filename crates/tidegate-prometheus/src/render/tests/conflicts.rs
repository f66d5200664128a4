// SPDX-License-Identifier: Apache-2.0

//! Series that collide: the exposition shows one of them, and the renderer reports the others.

use super::*;

#[test]
fn a_name_of_another_type_is_refused_whole_and_named() {
    let all = [
        (series("x", "", Data::Gauge, &[], &[]), Value::Int(1)),
        (series("x", "", COUNTER, &[], &[("a", "1")]), Value::Int(1)),
    ];
    let style = Style {
        naming: Naming {
            strategy: Translation::Nothing,
            ..Naming::default()
        },
        ..Style::default()
    };
    let (mut renderer, table) = (Renderer::new(Format::Text, style), table("test"));
    put(&table, &all);
    let tables = [table];
    let page = text(&mut renderer, &tables);
    assert_eq!(page.matches("# TYPE").count(), 1, "{page}");
    let conflicts = renderer.take_conflicts();
    assert_eq!((conflicts.len(), conflicts[0].series), (1, 1));
    assert_eq!(conflicts[0].reason, OmissionReason::TypeClash);
    assert!(
        conflicts[0].why.contains("`x` is a gauge of test already"),
        "{conflicts:?}"
    );
    put(&tables[0], &all);
    text(&mut renderer, &tables);
    assert_eq!(renderer.take_conflicts(), [], "reported once");
    assert_eq!(renderer.conflicts(), conflicts, "and shown as long as it is so");
}

#[test]
fn resources_that_differ_only_in_hidden_attributes_make_no_duplicates() {
    let one = series("x", "", Data::Gauge, &[("service.name", "s"), ("pod", "1")], &[]);
    let two = series("x", "", Data::Gauge, &[("service.name", "s"), ("pod", "2")], &[]);
    let mut plain = renderer(Format::Text);
    let text = page(
        &mut plain,
        &[(one.clone(), Value::Int(1)), (two.clone(), Value::Int(2))],
    );
    assert!(
        text.contains("x{instance=\"\",job=\"s\"} 1\n") && !text.contains("} 2\n"),
        "{text}"
    );
    assert_eq!(text.matches("\ntarget_info{").count(), 1, "{text}");
    let told = plain.take_conflicts();
    assert_eq!((told.len(), told[0].series), (1, 1));
    assert_eq!(told[0].reason, OmissionReason::AmbiguousIdentity);

    let style = Style {
        labels: LabelSources {
            resource: ResourceLabels {
                included: vec![Pattern::Glob("*".into())],
                excluded: Vec::new(),
            },
            ..LabelSources::default()
        },
        ..Style::default()
    };
    let text = page(
        &mut Renderer::new(Format::Text, style),
        &[(one, Value::Int(1)), (two, Value::Int(2))],
    );
    assert!(text.contains("pod=\"1\"") && text.contains("pod=\"2\""), "{text}");
}

#[test]
fn a_second_writer_of_a_series_is_refused_and_both_are_named() {
    let of = |value| [(series("x", "", COUNTER, &[], &[("a", "1")]), Value::Int(value))];
    let tables = [table("aggregate@metrics/a"), table("aggregate@metrics/b")];
    put(&tables[0], &of(1));
    put(&tables[1], &of(2));
    let mut renderer = renderer(Format::Text);
    let page = text(&mut renderer, &tables);
    assert!(
        page.contains("x_total{a=\"1\"} 1\n") && !page.contains("} 2\n"),
        "{page}"
    );
    let conflicts = renderer.take_conflicts();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(conflicts[0].reason, OmissionReason::DuplicateIdentity);
    assert_eq!(&*conflicts[0].owner, "aggregate@metrics/b");
    assert!(
        conflicts[0].why.starts_with("aggregate@metrics/a has a series"),
        "{conflicts:?}"
    );
    let page = text(&mut renderer, &tables[1..]);
    assert!(
        page.contains("x_total{a=\"1\"} 2\n"),
        "the first one is gone: {page}"
    );
    assert_eq!(renderer.conflicts(), []);
}

#[test]
fn a_place_becomes_free_when_its_owner_is_gone() {
    let gauge = [(series("x", "", Data::Gauge, &[], &[]), Value::Int(1))];
    let summary = [(
        series("x", "", Data::Summary, &[], &[]),
        Value::Summary(Box::default()),
    )];
    let (mut renderer, tables) = (renderer(Format::Text), [table("test")]);
    put(&tables[0], &gauge);
    text(&mut renderer, &tables);
    let later = NOW + 3600 * 1_000_000_000;
    put_at(&tables[0], &summary, later);
    let page = text(&mut renderer, &tables);
    assert!(
        page.contains("# TYPE x gauge"),
        "the name is still the gauge's: {page}"
    );
    (0..).map(|tick| later + tick * 1_000_000_000).find(|now| {
        tables[0].expire(*now);
        tables[0].len() == 1
    });
    assert_eq!(text(&mut renderer, &tables), "", "it has ended");
    let page = text(&mut renderer, &tables);
    assert!(page.contains("# TYPE x summary"), "{page}");
}

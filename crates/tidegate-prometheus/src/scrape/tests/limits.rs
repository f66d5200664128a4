// SPDX-License-Identifier: Apache-2.0

//! Limits of a page, and the memory that the decoder keeps.

use super::*;

#[test]
fn limits_fail_the_page() {
    type Case = (fn(&mut Settings), &'static str, Failure);
    let table: [Case; 5] = [
        (|s| s.sample_limit = 1, "a 1\nb 1\n", Failure::SampleLimit(1)),
        (|s| s.label_limit = 3, "a{b=\"c\"} 1\n", Failure::LabelLimit(3)),
        (
            |s| s.label_name_length_limit = 8,
            "a{b12345678=\"c\"} 1\n",
            Failure::LabelNameLength("b12345678".into()),
        ),
        (
            |s| s.label_value_length_limit = 3,
            "a{b=\"cdef\"} 1\n",
            Failure::LabelValueLength("b".into()),
        ),
        (
            |_| (),
            "a{b=\"c\",b=\"c\"} 1\n",
            Failure::DuplicateLabel("b".into()),
        ),
    ];
    for (set, page, expected) in table {
        let mut settings = settings();
        set(&mut settings);
        let mut decoder = ScrapeDecoder::new(settings, Box::new(Plain));
        let mut points = Vec::new();
        // Twice: the limit also applies to a known page.
        for scrape in 0..2 {
            let failed = decoder
                .page(Format::Text, page.as_bytes(), at(scrape), &mut points)
                .unwrap_err();
            assert_eq!(failed.failure, expected, "{page}");
        }
        assert!(points.is_empty());
        assert_eq!(show(&text(&mut decoder, "drop 1\na 1\n", 3)), ["a{} 1"], "{page}");
    }
}

#[test]
fn what_stays_away_is_forgotten() {
    let mut decoder = decoder();
    for scrape in 0..20 {
        let page: String = (0..1000)
            .map(|series| format!("a{{b=\"{scrape} {series}\"}} 1\n"))
            .collect();
        let points = text(&mut decoder, &page, scrape);
        assert_eq!(points.len(), if scrape == 0 { 1000 } else { 2000 });
        assert!(decoder.known_lines() <= 5000, "{}", decoder.known_lines());
    }
    assert!(decoder.slots.len() <= 5000);
}

#[test]
fn what_was_in_another_format_is_forgotten() {
    let mut decoder = decoder();
    for scrape in 0..50 {
        let lines: String = (0..20)
            .map(|series| format!("a{{b=\"{scrape} {series}\"}} 1\n"))
            .collect();
        let page = format!("{lines}target_info{{version=\"{scrape}\"}} 1\n# EOF\n");
        let format = [Format::Text, Format::OpenMetrics][scrape as usize % 2];
        let (points, _) = take(&mut decoder, format, &page, scrape);
        assert_eq!(points.len(), if scrape == 0 { 20 } else { 40 });
        assert!(decoder.slots.len() <= 40, "{}", decoder.slots.len());
        assert!(decoder.resources.infos() <= 2, "{}", decoder.resources.infos());
    }
}

#[test]
fn a_page_with_too_many_samples_is_counted_and_not_kept() {
    let settings = Settings {
        sample_limit: 10,
        ..settings()
    };
    let mut decoder = ScrapeDecoder::new(settings, Box::new(Plain));
    let page = |scrape| -> String {
        let series = (0..3000).map(|series| format!("a{{b=\"{scrape} {series}\"}} 1 {}\n", START + series));
        let again = (0..3000).map(|time| format!("a{{b=\"{scrape} 0\"}} 1 {}\n", START + time));
        series.chain(again).chain(["dropped 1\n".to_owned()]).collect()
    };
    for scrape in 0..3 {
        let mut points = Vec::new();
        let failed = decoder.page(Format::Text, page(scrape).as_bytes(), at(scrape), &mut points);
        let Failed { failure, counts } = failed.unwrap_err();
        assert_eq!(failure, Failure::SampleLimit(10));
        assert_eq!((counts.samples, counts.kept), (6001, 6000));
        let known = (scrape as usize + 1) * 11;
        assert_eq!((decoder.known_lines(), decoder.slots.len()), (known, known));
    }
    assert_eq!(show(&text(&mut decoder, "a 1\n", 3)), ["a{} 1"]);
}

#[test]
fn a_line_with_too_much_text_or_too_many_labels_fails_the_page() {
    let labels = |count: usize, value: &str| {
        let labels = (0..count).map(|number| format!("l{number}=\"{value}\""));
        format!("a{{{}}} 1\n", labels.collect::<Vec<_>>().join(","))
    };
    let fails = |settings: Settings, page: &str| {
        let mut decoder = ScrapeDecoder::new(settings, Box::new(Plain));
        let mut points = Vec::new();
        let failed = decoder.page(Format::Text, page.as_bytes(), at(0), &mut points);
        assert_eq!(failed.is_err(), points.is_empty());
        failed.err().map(|failed| failed.failure)
    };
    let most = model::MAX_LABELS - 1;
    assert_eq!(fails(settings(), &labels(most, "v")), None);
    assert_eq!(
        fails(settings(), &labels(most + 1, "v")),
        Some(Failure::LabelLimit(most + 1))
    );
    let many = Settings {
        label_limit: 2 * most,
        ..settings()
    };
    assert_eq!(fails(many, &labels(most + 1, "v")), None);
    let long = "y".repeat(model::MAX_TEXT_BYTES);
    assert_eq!(fails(settings(), &labels(1, &long)), Some(Failure::TextLimit));
    assert_eq!(fails(settings(), &labels(1, &long[100..])), None);
    // An exemplar that is too long is none.
    let page = format!(
        "# TYPE a counter\na_total 1 # {{x=\"{long}\"}} 1\na_total{{b=\"c\"}} 1 # {{x=\"y\"}} 1\n# EOF\n"
    );
    let (points, _) = take(&mut decoder(), Format::OpenMetrics, &page, 0);
    let exemplars: Vec<_> = points.iter().map(|point| point.exemplars.len()).collect();
    assert_eq!(exemplars, [0, 1]);
}

// SPDX-License-Identifier: Apache-2.0

//! Pages of all formats, right and wrong. The rules are Prometheus'; `tests/it` holds them against a real one.

use proptest::prelude::*;

use super::*;

/// A sample for people: labels, value, time, exemplar.
fn show(sample: &ExposedSample<'_>, labels: &Labels) -> String {
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut text = format!("{} {}", labels.join(","), sample.value);
    if let Some(time) = sample.timestamp {
        text += &format!(" @{time}");
    }
    if let Some(exemplar) = &sample.exemplar {
        let mut labels = Labels::default();
        exemplar.labels(&mut labels);
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        text += &format!(
            " # {} {} {:?}",
            labels.join(","),
            exemplar.value,
            exemplar.timestamp
        );
    }
    text
}

/// Everything that a page says.
fn read(format: Format, page: &[u8]) -> Result<Vec<String>, ParseError> {
    let mut parser = Parser::new(format, page, Options::default());
    let mut labels = Labels::default();
    let mut said = Vec::new();
    while let Some(event) = parser.next(b"")? {
        said.push(match event {
            Event::Type { family, kind } => format!("TYPE {} {}", family.get(), kind.name()),
            Event::Help { family, help } => format!("HELP {} {}", family.get(), help.get()),
            Event::Unit { family, unit } => format!("UNIT {} {}", family.get(), unit.get()),
            Event::Sample(sample) => {
                sample.series.labels(&mut labels)?;
                show(&sample, &labels)
            }
            Event::Histogram(histogram) => {
                histogram.series.labels(&mut labels)?;
                format!("{:?} {:?}", labels.iter().collect::<Vec<_>>(), histogram.value)
            }
        });
    }
    Ok(said)
}

fn text(page: &str) -> Result<Vec<String>, ParseError> {
    read(Format::Text, page.as_bytes())
}

fn open_metrics(page: &str) -> Result<Vec<String>, ParseError> {
    read(Format::OpenMetrics, page.as_bytes())
}

#[test]
fn a_text_page_is_parsed_with_escapes_and_timestamps() {
    let page = "# HELP a b\\nc\\\\d\\\"\n# TYPE a counter\n#comment\n\n  \n\
                a 1\na{b=\"c\"} 2 3\na { b = \"\\\"\\\\\\n\\x\" , c=\"d\" e=\"\" , } 0x 4\n";
    let error = text(page).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 8, column 37: expected a number after the series"
    );
    let said = text(&page.replace("0x", "-Inf")).unwrap();
    assert_eq!(
        said,
        [
            "HELP a b\nc\\d\\\"",
            "TYPE a counter",
            "__name__=a 1",
            "__name__=a,b=c 2 @3",
            "__name__=a,b=\"\\\n\\x,c=d,e= -inf @4",
        ]
    );
}

#[test]
fn names_in_quotes_are_names() {
    let page = "# TYPE \"a.b\" gauge\n{\"a.b\",\"c d\"=\"e\"} 1\n{x=\"y\",\"a\\\"b\"} 2\n";
    let said = text(page).unwrap();
    assert_eq!(
        said,
        ["TYPE a.b gauge", "__name__=a.b,c d=e 1", "__name__=a\"b,x=y 2"]
    );
    assert_eq!(open_metrics(&format!("{page}# EOF\n")).unwrap(), said);
}

#[test]
fn an_open_metrics_page_is_parsed_with_its_metadata() {
    let page = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n# HELP a_seconds b \\\"c\\\"\n\
                a_seconds_total{b=\"c\"} 1 1.5 # {trace_id=\"x\"} 0.5 2\na_seconds_created{b=\"c\"} 5\n\
                b{} 2 # {} 1\n# EOF";
    assert_eq!(
        open_metrics(page).unwrap(),
        [
            "TYPE a_seconds counter",
            "UNIT a_seconds seconds",
            "HELP a_seconds b \"c\"",
            "__name__=a_seconds_total,b=c 1 @1500 # trace_id=x 0.5 Some(2000)",
            "__name__=a_seconds_created,b=c 5",
            "__name__=b 2 #  1 None",
        ]
    );
}

#[test]
fn what_is_wrong_is_named() {
    use Problem::*;
    let table: &[(Format, &str, usize, usize, Problem)] = &[
        (Format::Text, "1a 1\n", 1, 1, ExpectedStart),
        (Format::Text, "a 1\n# TYPE 1 gauge\n", 2, 8, ExpectedFamily),
        (Format::Text, "# TYPE a info\n", 1, 9, ExpectedType),
        (Format::Text, "a{1=\"x\"} 1\n", 1, 3, ExpectedLabelName),
        (Format::Text, "a{b\"x\"} 1\n", 1, 4, ExpectedEqual),
        (Format::Text, "a{b=x} 1\n", 1, 5, ExpectedLabelValue),
        (Format::Text, "a{b=\"x\" 1\n", 1, 2, ExpectedBrace),
        (Format::Text, "a{\"b\"} 1\n", 1, 4, SecondName),
        (Format::Text, "{b=\"c\"} 1\n", 1, 1, NoName),
        (Format::Text, "{\"\"} 1\n", 1, 1, EmptyName),
        (Format::Text, "a{\"\"=\"x\"} 1\n", 1, 4, EmptyName),
        (Format::Text, "a\n", 1, 2, ExpectedValue),
        (Format::Text, "a 1 x\n", 1, 5, ExpectedTimestamp),
        (Format::Text, "a 1 -1\n", 1, 5, ExpectedTimestamp),
        (Format::Text, "a 1 1 1\n", 1, 7, ExpectedEnd),
        (Format::OpenMetrics, "a 1\n", 2, 1, ExpectedEof),
        (Format::OpenMetrics, "# EOF\n\n", 1, 6, BehindEof),
        (Format::OpenMetrics, "# x\n# EOF\n", 1, 3, ExpectedKeyword),
        (Format::OpenMetrics, "#x\n# EOF\n", 1, 1, ExpectedKeyword),
        (Format::OpenMetrics, "# UNIT a b\n# EOF\n", 1, 10, ExpectedUnit),
        (Format::OpenMetrics, "# TYPE a\n# EOF\n", 1, 9, ExpectedText),
        (
            Format::OpenMetrics,
            "a{b=\"c\" d=\"e\"} 1\n# EOF\n",
            1,
            8,
            ExpectedComma,
        ),
        (
            Format::OpenMetrics,
            "a 1 # {b=\"c\"} x\n# EOF\n",
            1,
            14,
            ExpectedExemplarValue,
        ),
        (
            Format::OpenMetrics,
            "a 1 # {\"b\nc\"=\"d\"} 1\n# EOF\n",
            1,
            9,
            ExpectedLabelName,
        ),
        (Format::OpenMetrics, "a 1 NaN\n# EOF\n", 1, 4, ExpectedTimestamp),
        (Format::OpenMetrics, "\n# EOF\n", 1, 1, ExpectedStart),
    ];
    for (format, page, line, column, problem) in table {
        let expected = ParseError::Line {
            line: *line,
            column: *column,
            problem: problem.clone(),
        };
        assert_eq!(read(*format, page.as_bytes()), Err(expected), "{page:?}");
    }
    assert!(matches!(
        read(Format::Text, b"a{b=\"\xff\"} 1\n"),
        Err(ParseError::Line {
            problem: ExpectedUtf8,
            column: 6,
            ..
        })
    ));
}

/// A length as protobuf writes it.
fn varint(number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    tidegate_model::varint::push_varint(&mut bytes, number as u64);
    bytes
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len()), bytes].concat()
}

/// A page of one metric: of this type, with this message in this field.
fn metric(kind: u8, at: u8, message: &[u8]) -> Vec<u8> {
    let family = [field(1, b"m"), vec![3 << 3, kind], field(4, &field(at, message))].concat();
    [varint(family.len()), family].concat()
}

#[test]
fn the_parts_of_a_metric_are_limited() {
    let empty = |number: u8, count: usize| field(number, b"").repeat(count);
    // Help, type, count and sum, the last bucket.
    let sound = read(Format::Protobuf, &metric(4, 7, &empty(3, 90_000))).unwrap();
    assert_eq!(sound.len(), 90_005);
    assert_eq!(
        sound[2..5],
        [
            "__name__=m_count 0",
            "__name__=m_sum 0",
            "__name__=m_bucket,le=0.0 0"
        ]
    );
    assert_eq!(sound[90_004], "__name__=m_bucket,le=+Inf 0");
    // An exemplar's number has two bytes.
    let exemplars = [0x82, 1, 0].repeat(100_001);
    for page in [
        metric(4, 7, &empty(3, 100_001)),
        metric(2, 4, &empty(3, 100_001)),
        metric(4, 7, &exemplars),
    ] {
        let error = read(Format::Protobuf, &page).unwrap_err();
        assert_eq!(*error.problem(), Problem::TooMany);
    }
}

/// Bytes that the formats give a meaning to, and others.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        4 => prop::sample::select(vec![
            "a", "b1", "{", "}", "\"", "\\", "=", ",", " ", "\t", "\n", "#", "# TYPE ", "# HELP ", "# UNIT ", "# EOF",
            " # {", "counter", "1", "0.5", "-1", "NaN", "1e400", "le=\"1\"", "{x=\"y\"}", "\0", "é",
        ]).prop_map(|token| token.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

/// Families whose metrics have few labels, among and behind their values, too.
fn families() -> impl Strategy<Value = Vec<u8>> {
    let label = prop::sample::select(vec!["", "a", "ab"]).prop_map(|text| field(1, text.as_bytes()));
    let value = prop::sample::select(vec![
        vec![],
        vec![1 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        field(3, b""),
    ]);
    let part = prop_oneof![
        3 => (label, "[bé]?").prop_map(|(name, value)| field(1, &[name, field(2, value.as_bytes())].concat())),
        2 => (2u8..=7, value).prop_map(|(at, value)| field(at, &value)),
        1 => Just(vec![6 << 3, 7]),
    ];
    let metric = prop::collection::vec(part, 0..5).prop_map(|parts| field(4, &parts.concat()));
    let family = (
        prop::sample::select(vec!["m", "mm"]),
        0u8..6,
        prop::collection::vec(metric, 0..4),
    );
    let family = family.prop_map(|(name, kind, metrics)| {
        let family = [field(1, name.as_bytes()), vec![3 << 3, kind], metrics.concat()].concat();
        [varint(family.len()), family].concat()
    });
    prop::collection::vec(family, 0..4).prop_map(|families| families.concat())
}

/// A page that may be anything, and its format.
fn page() -> impl Strategy<Value = (Vec<u8>, Format)> {
    let formats = vec![Format::Text, Format::OpenMetrics, Format::Protobuf];
    prop_oneof![
        3 => (hostile(), prop::sample::select(formats)),
        1 => families().prop_map(|page| (page, Format::Protobuf)),
    ]
}

proptest! {
    /// No page makes it panic or loop, and what is expected changes nothing but the way there.
    #[test]
    fn an_expectation_changes_nothing((page, format) in page()) {
        let mut known: Vec<Vec<u8>> = Vec::new();
        let mut plain = Parser::new(format, &page, Options::default());
        let mut labels = Labels::default();
        let mut said = Vec::new();
        let outcome = loop {
            match plain.next(b"") {
                Err(error) => break Err(error),
                Ok(None) => break Ok(()),
                Ok(Some(Event::Sample(sample))) => {
                    if let Err(error) = sample.series.labels(&mut labels) {
                        break Err(error);
                    }
                    known.push(sample.series.raw().to_vec());
                    said.push(show(&sample, &labels));
                }
                Ok(Some(_)) => {}
            }
            prop_assert!(said.len() <= 3 * page.len());
        };
        for expected in &known {
            let mut parser = Parser::new(format, &page, Options::default());
            let mut again = Vec::new();
            let second = loop {
                match parser.next(expected) {
                    Err(error) => break Err(error),
                    Ok(None) => break Ok(()),
                    Ok(Some(Event::Sample(sample))) => {
                        if let Err(error) = sample.series.labels(&mut labels) {
                            break Err(error);
                        }
                        again.push(show(&sample, &labels));
                    }
                    Ok(Some(_)) => {}
                }
            };
            prop_assert_eq!(&again, &said);
            prop_assert_eq!(&second, &outcome);
        }
    }
}

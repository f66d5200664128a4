// SPDX-License-Identifier: Apache-2.0

//! The results of tests as JUnit XML, which CI systems show.

use std::fmt::Write as _;
use std::time::Duration;

/// The results of a file.
pub(super) struct FileReport {
    /// The name as given on the command line.
    pub(super) file: String,
    pub(super) cases: Vec<CaseReport>,
}

/// The result of a test.
pub(super) struct CaseReport {
    pub(super) name: String,
    /// The real time that it took.
    pub(super) took: Duration,
    /// Everything that is wrong; `None`: it passed.
    pub(super) failure: Option<String>,
}

impl FileReport {
    /// The number of tests that failed.
    pub(super) fn failures(&self) -> usize {
        self.cases.iter().filter(|case| case.failure.is_some()).count()
    }

    fn took(&self) -> Duration {
        self.cases.iter().map(|case| case.took).sum()
    }
}

/// The results as XML.
pub(super) fn render(reports: &[FileReport]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites");
    let tests = reports.iter().map(|report| report.cases.len()).sum();
    let failures = reports.iter().map(FileReport::failures).sum();
    let took = reports.iter().map(FileReport::took).sum();
    put_totals(&mut xml, tests, failures, took);
    for report in reports {
        let _ = write!(xml, "  <testsuite name=\"{}\"", escaped(&report.file));
        put_totals(&mut xml, report.cases.len(), report.failures(), report.took());
        for case in &report.cases {
            put_case(&mut xml, &report.file, case);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml + "</testsuites>\n"
}

/// Ends a tag with its totals.
fn put_totals(xml: &mut String, tests: usize, failures: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    let _ = writeln!(
        xml,
        " tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\" time=\"{seconds:.3}\">"
    );
}

fn put_case(xml: &mut String, file: &str, case: &CaseReport) {
    let (name, seconds) = (escaped(&case.name), case.took.as_secs_f64());
    let file = escaped(file);
    let _ = write!(
        xml,
        "    <testcase name=\"{name}\" classname=\"{file}\" time=\"{seconds:.3}\""
    );
    match &case.failure {
        None => xml.push_str("/>\n"),
        Some(failure) => {
            let message = escaped(failure.lines().next().unwrap_or_default());
            let text = escaped(failure);
            let _ = writeln!(
                xml,
                ">\n      <failure message=\"{message}\">{text}</failure>\n    </testcase>"
            );
        }
    }
}

/// A text for an attribute or an element. Characters that XML 1.0 can't have become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            '\t' => out.push_str("&#9;"),
            '\r' => out.push_str("&#13;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_a_case_and_a_failure_has_its_text() {
        let case = |name: &str, failure: Option<&str>| CaseReport {
            name: name.to_owned(),
            took: Duration::from_millis(1500),
            failure: failure.map(str::to_owned),
        };
        let report = FileReport {
            file: "a.test.yaml".to_owned(),
            cases: vec![
                case("good", None),
                case("a < b & \"c\"", Some("first\u{1}\nsecond <x>")),
            ],
        };
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\" time=\"3.000\">
  <testsuite name=\"a.test.yaml\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\" time=\"3.000\">
    <testcase name=\"good\" classname=\"a.test.yaml\" time=\"1.500\"/>
    <testcase name=\"a &lt; b &amp; &quot;c&quot;\" classname=\"a.test.yaml\" time=\"1.500\">
      <failure message=\"first\u{fffd}\">first\u{fffd}
second &lt;x&gt;</failure>
    </testcase>
  </testsuite>
</testsuites>
";
        assert_eq!(render(&[report]), expected);
    }
}

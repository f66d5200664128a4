// SPDX-License-Identifier: Apache-2.0

//! Pages like those of the list, with something wrong or unusual in them.

use proptest::prelude::*;
use tidegate_exposition::Format;

use super::Case;

/// The tokens that are put into pages. No NUL: where Prometheus' lexer takes one for the end of the page is listed by
/// hand.
const TOKENS: [&str; 28] = [
    " ",
    "  ",
    "\t",
    "\n",
    "\r",
    "\"",
    "\\",
    "\\\\",
    "\\n",
    "{",
    "}",
    "=",
    ",",
    "#",
    " # {",
    "a",
    "b=\"c\"",
    "1",
    "-",
    ".",
    "e",
    "é",
    "# TYPE a gauge\n",
    "# HELP a b\n",
    "# EOF\n",
    "{x=\"y\"}",
    "NaN",
    "\u{fffd}",
];

/// A change at a place of a page.
#[derive(Clone, Debug)]
enum Change {
    Insert(prop::sample::Index, &'static str),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (
            any::<prop::sample::Index>(),
            prop::sample::select(TOKENS.to_vec())
        )
            .prop_map(|(at, token)| Change::Insert(at, token)),
        (any::<prop::sample::Index>(), 1..4usize).prop_map(|(at, len)| Change::Remove(at, len)),
        (any::<prop::sample::Index>(), 1..8usize).prop_map(|(at, len)| Change::Repeat(at, len)),
    ]
}

/// Pages of the list with one to three changes.
pub(super) fn of(listed: Vec<Case>) -> impl Strategy<Value = Case> {
    let usual = listed.into_iter().filter(|case| {
        // The result of a page without times does not depend on the time of its scrape.
        case.format != Format::Protobuf && !case.page.contains(&0) && case.page.len() < 60
    });
    let cases: Vec<Case> = usual.collect();
    (prop::sample::select(cases), prop::collection::vec(change(), 1..4))
        .prop_map(|(mut case, changes)| {
            changes.iter().for_each(|change| apply(&mut case.page, change));
            case.differs = None;
            case
        })
        .prop_filter(
            "a server that can't take the time does not look at the labels",
            |case| !has_label_twice_and_time(&String::from_utf8_lossy(&case.page)),
        )
}

/// Whether a sample has a label or its name twice, and a time of its own, which after a change is a time long ago.
fn has_label_twice_and_time(page: &str) -> bool {
    page.lines().any(|line| {
        let parts = line
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.rsplit_once('}')?)));
        let Some((before, (labels, values))) = parts else {
            return false;
        };
        let name_of = |label: &str| match label.split_once('=') {
            Some((name, _)) => name.trim_matches(['"', ' ', '\t']).to_owned(),
            None => "__name__".to_owned(),
        };
        let labels = labels.split(',').filter(|label| !label.trim().is_empty());
        let mut names: Vec<_> = labels.map(name_of).collect();
        names.extend((!before.trim().is_empty()).then(|| "__name__".to_owned()));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() < all && values.split_whitespace().count() > 1
    })
}

fn apply(page: &mut Vec<u8>, change: &Change) {
    let place = |at: &prop::sample::Index, page: &Vec<u8>| at.index(page.len() + 1);
    match change {
        Change::Insert(at, token) => {
            let at = place(at, page);
            page.splice(at..at, token.bytes());
        }
        Change::Remove(at, len) => {
            let at = place(at, page);
            page.drain(at..page.len().min(at + len));
        }
        Change::Repeat(at, len) => {
            let at = place(at, page);
            let again = page[at..page.len().min(at + len)].to_vec();
            page.splice(at..at, again);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0

//! Words: those that no file, type or function has in its name, and how tests are named.

use std::path::Path;

use super::tokens::{Token, tokens};
use super::{Breach, rust_files};

/// Where names are checked.
const DIRECTORIES: &[&str] = &[
    "bench", "benches", "crates", "examples", "fuzz", "python", "src", "tests", "xtask",
];

/// Words that this repository made up, and the term of the field. Add a word when its last name is gone.
///
/// Names of tests are sentences: they may have any word.
const WORDS: &[(&str, &str)] = &[
    ("behind", "deferred task"),
    ("book", "registry"),
    ("books", "metrics"),
    ("charge", "permit"),
    ("complaints", "log limit"),
    ("corked", "write coalescing"),
    ("desk", "request handler"),
    ("door", "authenticator"),
    ("essence", "comparable value"),
    ("face", "format renderer"),
    ("feeder", "source"),
    ("former", "restored state"),
    ("hear", "record"),
    ("heard", "last seen"),
    ("heir", "drain handler"),
    ("how", "dispatch"),
    ("intake", "decoder"),
    ("judge", "evaluator"),
    ("keeper", "authenticator"),
    ("lane", "queue"),
    ("lanes", "queues"),
    ("learn", "series registration"),
    ("learning", "series registration"),
    ("life", "lifetime"),
    ("look", "read or check"),
    ("looker", "reader"),
    ("looks", "next check"),
    ("made", "result"),
    ("maker", "writer"),
    ("makes", "output descriptor"),
    ("making", "permit"),
    ("meet", "series registration"),
    ("memo", "attempt state"),
    ("news", "changes"),
    ("outbox", "completion queue"),
    ("outlet", "event sink"),
    ("pace", "rate or interval"),
    ("paced", "rate"),
    ("pacing", "backpressure delay"),
    ("parcel", "export request"),
    ("place", "position or slot"),
    ("places", "positions or slots"),
    ("press", "render job"),
    ("said", "answer"),
    ("say", "report"),
    ("says", "report"),
    ("seal", "segment epoch"),
    ("see", "observe"),
    ("settle", "release or resolve"),
    ("sheet", "encoder"),
    ("shelf", "pool"),
    ("shot", "snapshot"),
    ("spare", "recycled segment"),
    ("spares", "segment pool"),
    ("standing", "state"),
    ("stray", "timestamp anomaly"),
    ("strays", "timestamp anomaly"),
    ("tell", "notify"),
    ("ticket", "acknowledgement guard"),
    ("told", "reported"),
    ("unsaid", "omitted"),
    ("unsynced", "pending fsync"),
    ("untold", "unreported"),
    ("verdict", "outcome"),
    ("way", "placement"),
    ("witness", "snapshot reader"),
];

/// Names that keep such a word, and the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("Made", "public in tidegate-metrics"),
    ("PagePlace", "the source of a page of a cluster"),
    ("RecordPlace", "the key of a record of a cluster"),
    ("broken_in_place_of", "\"in place of\" is English"),
    ("check_in_place", "\"in place\" is a term"),
    ("look", "public in tidegate-cells"),
    ("look_up", "a term"),
    ("look_within", "public in tidegate-cells"),
    ("put_in_place", "\"in place\" is a term"),
    ("say_bye", "the bye of the protocol of a cluster"),
];

/// The most characters of a test's name. A longer one does not fit into a line of results.
const MAX_TEST_NAME: usize = 70;

/// A name that a file declares.
struct Name<'a> {
    text: &'a str,
    line: usize,
    is_test: bool,
}

/// Checks the names of all Rust files, and those in them.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Breach>, String> {
    let mut breaches = Vec::new();
    for directory in DIRECTORIES {
        for (path, text) in rust_files(root, directory)? {
            breaches.extend(of_file(&path, &text, WORDS));
        }
    }
    Ok(breaches)
}

fn of_file(path: &str, text: &str, table: &[(&str, &str)]) -> Vec<Breach> {
    let breach = |at: String, message: Option<String>| message.map(|message| Breach { at, message });
    let tokens = tokens(text);
    let of_names = names(&tokens).into_iter().filter_map(|name| {
        let message = if name.is_test {
            numbered(name.text).or_else(|| too_long(name.text))
        } else {
            refusal(name.text, table)
        };
        breach(format!("{path}:{}", name.line), message)
    });
    let of_path = breach(path.to_owned(), refusal(path, table));
    of_path.into_iter().chain(of_names).collect()
}

/// The names of types, modules and functions that the tokens declare.
fn names<'a>(tokens: &[Token<'a>]) -> Vec<Name<'a>> {
    const KEYWORDS: &[&str] = &["enum", "fn", "mod", "struct", "trait", "type", "union"];
    let mut names = Vec::new();
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "#" => is_test |= is_test_attribute(&tokens[at..]),
            ";" | "{" | "}" => is_test = false,
            keyword if KEYWORDS.contains(&keyword) => {
                let declared = tokens.get(at + 1).filter(|next| is_name(next.text));
                names.extend(declared.map(|next| Name {
                    text: next.text,
                    line: next.line,
                    is_test,
                }));
            }
            _ => {}
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether an attribute such as `#[test]` or `#[tokio::test(...)]` begins here.
fn is_test_attribute(tokens: &[Token<'_>]) -> bool {
    let path = tokens.iter().skip(2).map(|token| token.text);
    let last = path.take_while(|text| is_name(text) || *text == "::").last();
    last == Some("test")
}

/// Whether a name has a word of the table.
fn refusal(name: &str, table: &[(&str, &str)]) -> Option<String> {
    if EXCEPTIONS.iter().any(|(kept, _)| *kept == name) {
        return None;
    }
    let words = words(name);
    let is_there = |word: &str| words.iter().any(|found| found == word);
    let (word, term) = table.iter().find(|(word, _)| is_there(word))?;
    Some(format!("`{name}` has the word `{word}`: the term is \"{term}\""))
}

/// The words of a name in small letters: those of `HttpClient` and of `net/http_client.rs` are `http` and `client`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase() || c.is_numeric();
    }
    words
}

/// Whether the name of a test begins with the number of a requirement, such as `s21_`.
fn numbered(name: &str) -> Option<String> {
    let (first, _) = name.split_once('_')?;
    let digits = first.strip_prefix(|c: char| c.is_ascii_lowercase())?;
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| format!("`{name}` begins with a number: a test is named by what it expects"))
}

/// Whether the name of a test has more than [`MAX_TEST_NAME`] characters.
fn too_long(name: &str) -> Option<String> {
    let is_long = name.len() > MAX_TEST_NAME;
    is_long.then(|| {
        format!(
            "`{name}` has {} characters: {MAX_TEST_NAME} is the most for a test",
            name.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[(&str, &str)] = &[("desk", "handler"), ("tray", "queue")];

    fn found(path: &str, text: &str) -> Vec<String> {
        let breaches = of_file(path, text, TABLE);
        breaches.into_iter().map(|breach| breach.at).collect()
    }

    #[test]
    fn types_functions_modules_and_files_do_not_have_the_words() {
        let table = [
            ("struct Desk;", 1),
            ("pub(crate) enum HelpDesk<T> {}", 1),
            ("impl A { fn in_tray(&self) {} }", 1),
            ("mod desk;", 1),
            ("struct Desktop; fn stray() {}", 0),
            ("// A desk.\nlet desk = \"struct Desk\"; f(desk);", 0),
        ];
        for (text, count) in table {
            assert_eq!(found("src/a.rs", text).len(), count, "{text}");
        }
        assert_eq!(found("src/help_desk/mod.rs", ""), ["src/help_desk/mod.rs"]);
    }

    #[test]
    fn names_of_tests_are_short_sentences_without_a_number() {
        let table = [
            ("#[test]\nfn a_desk_is_a_desk() {}", 0),
            ("#[test]\nfn s21_it_works() {}", 1),
            (
                "#[tokio::test(start_paused = true)]\nasync fn e3_e6_it_works() {}",
                1,
            ),
            ("#[test]\nfn http2_works() {}", 0),
            (
                "#[test]\nfn a_name_of_seventy_characters_is_the_longest_that_the_rules_let_pass_on() {}",
                0,
            ),
            (
                "#[test]\nfn a_name_of_seventy_one_characters_is_longer_than_all_that_the_rules_pass() {}",
                1,
            ),
            ("#[cfg(test)]\nfn u32_at() {}", 0),
            ("#[test]\nfn a() {}\nfn u32_at() {}", 0),
        ];
        for (text, count) in table {
            assert_eq!(found("src/a.rs", text).len(), count, "{text}");
        }
    }

    #[test]
    fn a_breach_names_the_line_and_the_term() {
        let breaches = of_file("src/a.rs", "\n\nstruct Desk;", TABLE);
        let shown: Vec<_> = breaches.iter().map(Breach::to_string).collect();
        assert_eq!(
            shown,
            ["src/a.rs:3: `Desk` has the word `desk`: the term is \"handler\""]
        );
    }
}

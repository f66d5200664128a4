// SPDX-License-Identifier: Apache-2.0

//! "Did you mean": the known word nearest to a mistyped one.

/// Longer words are not compared; the distance costs the product of the lengths.
const MAX_CHARS: usize = 64;

/// Shortest start of a word that counts as an abbreviation of it (`dir` for `directories`).
const MIN_PREFIX_CHARS: usize = 3;

/// The candidate that was probably meant, if one is near enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = normal(word)?;
    candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(&word, &normal(candidate)?)?, candidate)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How far apart two words are; `None` when too far to be the same word mistyped.
fn distance(word: &str, candidate: &str) -> Option<usize> {
    let edits = strsim::damerau_levenshtein(word, candidate);
    if edits <= (word.len().max(candidate.len()) / 3).max(1) && edits < candidate.len() {
        return Some(edits);
    }
    let abbreviates = word.len() >= MIN_PREFIX_CHARS && candidate.starts_with(word)
        || candidate.len() >= MIN_PREFIX_CHARS && word.starts_with(candidate);
    abbreviates.then_some(MAX_CHARS)
}

fn normal(word: &str) -> Option<String> {
    let fits = !word.is_empty() && word.len() <= MAX_CHARS;
    fits.then(|| word.to_ascii_lowercase().replace('-', "_"))
}

// SPDX-License-Identifier: Apache-2.0

//! Globs in the options of receivers that follow files.

use glob::Pattern;

use crate::config::{Node, Problems};

/// Every text in the list must be a glob.
pub(super) fn check_globs(list: &Node, cx: &mut Problems) {
    for item in list.as_list().unwrap_or_default() {
        if let Some(Err(error)) = item.as_str().map(Pattern::new) {
            cx.at(item).error(format!("not a glob: {error}"));
        }
    }
}

/// Globs that have been checked already.
pub(super) fn patterns(globs: &[String]) -> Vec<Pattern> {
    globs.iter().filter_map(|glob| Pattern::new(glob).ok()).collect()
}

// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask crates`: a picture of the dependencies between the crates of the workspace.
//!
//! [`layout`] chooses the places of boxes and arrows, [`svg`] writes them.

mod layout;
mod svg;

use self::layout::Layout;
use crate::metadata::{Package, packages};
use crate::{Outcome, test::workspace};

/// The picture, below the root of the repository.
const PICTURE: &str = "docs/crates.svg";

/// The longest line of text that a box has room for.
const LINE_LENGTH: usize = 32;

/// The crates of the workspace, in the order of their names.
///
/// Cargo refuses cycles of dependencies outside tests, so every walk along them ends.
struct Graph {
    crates: Vec<Crate>,
}

struct Crate {
    name: String,
    /// The beginning of the description.
    lines: Vec<String>,
    /// The indices of the crates that it depends on, in order.
    uses: Vec<usize>,
}

/// Writes the picture.
pub(crate) fn crates(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask crates".into());
    }
    let path = workspace().join(PICTURE);
    std::fs::write(&path, picture()?).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn picture() -> Result<String, String> {
    let graph = Graph::of(&packages("Cargo.toml")?);
    Ok(svg::svg(&graph, &Layout::of(&graph)))
}

impl Graph {
    /// The packages are in the order of their names.
    fn of(packages: &[Package]) -> Self {
        let index = |name: &String| packages.iter().position(|package| package.name == *name);
        let crates = packages.iter().map(|package| Crate {
            name: package.name.clone(),
            lines: lines(&package.description),
            uses: package.uses.iter().filter_map(index).collect(),
        });
        Self {
            crates: crates.collect(),
        }
    }

    /// The length of the longest path of dependencies from a crate.
    fn level(&self, index: usize) -> usize {
        let below = self.crates[index].uses.iter().map(|used| self.level(*used) + 1);
        below.max().unwrap_or(0)
    }

    /// The dependencies that no longer path implies, as pairs of indices.
    fn arrows(&self) -> Vec<(usize, usize)> {
        let crates = self.crates.iter().enumerate();
        let all = crates.flat_map(|(from, one)| one.uses.iter().map(move |to| (from, *to)));
        all.filter(|(from, to)| !self.is_implied(*from, *to)).collect()
    }

    fn is_implied(&self, from: usize, to: usize) -> bool {
        let mut others = self.crates[from].uses.iter().filter(|used| **used != to);
        others.any(|used| self.reaches(*used, to))
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.crates[from].uses.iter().any(|used| self.reaches(*used, to))
    }
}

/// The description up to its first comma, colon or semicolon, in lines of a box.
fn lines(description: &str) -> Vec<String> {
    let part = description.split([',', ':', ';']).next().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for word in part.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= LINE_LENGTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_picture_shows_the_present_crates() {
        let committed = std::fs::read_to_string(workspace().join(PICTURE)).expect("the picture is committed");
        let present = picture().expect("cargo knows the workspace");
        assert!(committed == present, "{PICTURE} is old: run `cargo xtask crates`");
    }

    fn package(name: &str, uses: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            description: String::new(),
            manifest: String::new(),
            uses: uses.iter().map(|used| (*used).to_owned()).collect(),
        }
    }

    /// `a` needs `b` and `c`; `b` needs `c`.
    fn graph() -> Graph {
        Graph::of(&[
            package("a", &["b", "c"]),
            package("b", &["c"]),
            package("c", &[]),
            package("d", &[]),
        ])
    }

    #[test]
    fn a_dependency_that_a_longer_path_implies_has_no_arrow() {
        assert_eq!(graph().arrows(), [(0, 1), (1, 2)]);
    }

    #[test]
    fn a_level_is_the_longest_path_below_a_crate() {
        let graph = graph();
        let levels: Vec<_> = (0..4).map(|index| graph.level(index)).collect();
        assert_eq!(levels, [2, 1, 0, 0]);
    }

    #[test]
    fn a_box_has_the_first_part_of_a_description() {
        let description = "The arithmetic of the gateway's account of memory, tried under every interleaving";
        assert_eq!(
            lines(description),
            ["The arithmetic of the gateway's", "account of memory"]
        );
    }
}
